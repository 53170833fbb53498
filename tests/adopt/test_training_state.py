"""What training changes has names of its own, whatever modules and optimizers share."""

from __future__ import annotations

import torch
from torch import nn

from launchscope.adopt.child.state import TrainingState


def test_models_whose_parameters_have_the_same_names_share_an_optimizer() -> None:
    """As those of a GAN whose third optimizer trains both networks."""
    models = [nn.Sequential(nn.Linear(2, 3)), nn.Sequential(nn.Linear(4, 5))]
    parameters = [p for model in models for p in model.parameters()]
    optimizers = [torch.optim.Adam(parameters), torch.optim.RMSprop(models[0].parameters())]
    sum(model(torch.ones(1, n)).sum() for model, n in zip(models, (2, 4))).backward()
    state = TrainingState(torch)
    for optimizer in optimizers:
        state.add_optimizer(optimizer)
        optimizer.step()
    state.find_modules()
    tensors = state.tensors()
    known = {id(tensor): name for name, tensor in tensors.items()}
    adam, rms = ({id(v) for s in o.state.values() for v in s.values()} for o in optimizers)
    assert (adam | rms) <= known.keys()
    for model, optimized in zip(models, (2, 1)):
        for parameter in model.parameters():
            squares = [tensors[name] for name in state.squares[known[id(parameter)]]]
            assert [square.shape for square in squares] == [parameter.shape] * optimized
            assert squares[0] is optimizers[0].state[parameter]["exp_avg_sq"]


def test_an_sgd_with_momentum_for_some_parameters_only_is_known() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    known = TrainingState(torch)
    known.add_optimizer(optimizer)
    for frozen in (True, False):
        model[0].requires_grad_(not frozen)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        assert known.has_partial_momentum() is frozen
