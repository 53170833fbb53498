"""Training loops in the situations that a graph of the step must survive.

Each situation is a function of `wrap`, which puts the step under a graph (or leaves it alone), and
of the number of steps. It returns what it trained: losses and final weights. Runs with and without
graphs are compared bit for bit: on a GPU by `tests/gpu/test_graphed.py`, on the CPU with an
emulated graph by `tests/graphed/test_situations.py`.
"""

from __future__ import annotations

import copy
import functools
import random
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.optim import optimizer as optimizer_hooks

Tensor = torch.Tensor
DEVICE = "cuda"
CAPTURING = torch.cuda.is_current_stream_capturing
WIDTH = 64


class Wrap(Protocol):
    def __call__(self, step: Callable[..., Any], **options: Any) -> Callable[..., Any]: ...


def as_it_is(step: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return step


@dataclass(frozen=True)
class Trajectory:
    """What a loop trained."""

    losses: list[float]
    weights: list[Tensor]


@dataclass(frozen=True)
class Situation:
    run: Callable[[Wrap, int], Trajectory]
    replays: bool  # whether any call may be replayed; otherwise it has to say why not
    code: str | None  # of the reason for which some calls run eagerly


SITUATIONS: dict[str, Situation] = {}


def situation(
    replays: bool = True, code: str | None = None
) -> Callable[[Callable[[Wrap, int], Trajectory]], Callable[[Wrap, int], Trajectory]]:
    def add(run: Callable[[Wrap, int], Trajectory]) -> Callable[[Wrap, int], Trajectory]:
        SITUATIONS[run.__name__] = Situation(run, replays, code)
        return run

    return add


def mlp(dropout: float = 0.0, norm: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    if norm:
        layers.append(nn.BatchNorm1d(WIDTH))
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 8)).to(
        DEVICE
    )


def batches(count: int, size: int | Callable[[int], int] = 32) -> Iterable[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(2)  # for what draws on the device
    for index in range(count):
        rows = size(index) if callable(size) else size
        x = torch.randn(rows, WIDTH, generator=generator)
        y = torch.randint(0, 8, (rows,), generator=generator)
        yield x.to(DEVICE), y.to(DEVICE)


def ended(losses: list[Any], *modules: nn.Module) -> Trajectory:
    values = [float(loss) for loss in losses]
    weights = [t.detach().cpu().clone() for m in modules for t in m.state_dict().values()]
    return Trajectory(values, weights)


def fused(model: nn.Module, lr: Any = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr, fused=True)


def plain_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy,
) -> Callable[[Tensor, Tensor], Tensor]:
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def trained(
    wrap: Wrap,
    steps: int,
    make: Callable[[nn.Module], torch.optim.Optimizer] = fused,
    after: Callable[[int, nn.Module, torch.optim.Optimizer, Tensor], None] | None = None,
    schedule: Callable[[torch.optim.Optimizer], Any] | None = None,
    size: int | Callable[[int], int] = 32,
    **model_options: Any,
) -> Trajectory:
    """The plain loop; `after` runs behind each step."""
    model = mlp(**model_options)
    optimizer = make(model)
    scheduler = None if schedule is None else schedule(optimizer)
    step = wrap(plain_step(model, optimizer))
    losses = []
    for index, (x, y) in enumerate(batches(steps, size)):
        loss = step(x, y)
        losses.append(loss)
        if scheduler is not None:
            scheduler.step()
        if after is not None:
            after(index, model, optimizer, loss)
    return ended(losses, model)


# --- Optimizers ----------------------------------------------------------------------------------


def _add_optimizers() -> None:
    makers: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
        "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.05),
        "sgd_momentum": lambda m: torch.optim.SGD(
            m.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4
        ),
        "sgd_fused": lambda m: torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9, fused=True),
        "adam": lambda m: torch.optim.Adam(m.parameters(), lr=1e-2),
        # Takes no tensor as its rate, which a capture finds out.
        "adadelta_no_foreach": lambda m: torch.optim.Adadelta(m.parameters(), foreach=False),
        "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2),
        "adamw_fused": fused,
        "adamw_capturable": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2, capturable=True),
        "adadelta": lambda m: torch.optim.Adadelta(m.parameters(), lr=1.0),
        "adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=1e-2),
        "adamax": lambda m: torch.optim.Adamax(m.parameters(), lr=1e-2),
        "asgd": lambda m: torch.optim.ASGD(m.parameters(), lr=1e-2),
        "nadam": lambda m: torch.optim.NAdam(m.parameters(), lr=1e-2),
        "radam": lambda m: torch.optim.RAdam(m.parameters(), lr=1e-2),
        "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=1e-3, momentum=0.9),
        "rprop": lambda m: torch.optim.Rprop(m.parameters(), lr=1e-3),
        "two_groups": lambda m: torch.optim.AdamW(
            [
                {"params": [p for p in m.parameters() if p.dim() > 1], "weight_decay": 0.1},
                {"params": [p for p in m.parameters() if p.dim() <= 1], "lr": 1e-3},
            ],
            lr=1e-2,
            fused=True,
        ),
    }
    for name, make in makers.items():

        def run(wrap: Wrap, steps: int, make: Any = make) -> Trajectory:
            return trained(wrap, steps, make)

        def run_with_a_moving_rate(wrap: Wrap, steps: int, make: Any = make) -> Trajectory:
            schedule = functools.partial(lr_scheduler.ExponentialLR, gamma=0.99)
            return trained(wrap, steps, make, schedule=schedule)

        run.__name__ = f"optimizer_{name}"
        run_with_a_moving_rate.__name__ = f"moving_rate_{name}"
        situation()(run)
        situation()(run_with_a_moving_rate)


_add_optimizers()


@situation()
def a_schedule_of_rates_and_betas(wrap: Wrap, steps: int) -> Trajectory:
    return trained(
        wrap, steps, schedule=lambda o: lr_scheduler.OneCycleLR(o, 1e-2, total_steps=400)
    )


class Nested(torch.optim.SGD):
    """torch puts hooks around its step, and around the one within."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


@situation()
def a_step_that_was_bound_before(wrap: Wrap, steps: int) -> Trajectory:
    """A graph would keep the first rate; and a hook of the script changes what the step reads."""
    model = mlp()
    torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = Nested(model.parameters(), lr=0.1)
    schedule = lr_scheduler.ExponentialLR(optimizer, 0.9)
    optimize = optimizer.step

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimize()
        return loss.detach()

    def halve(optimizer: Any, *_: Any) -> None:
        torch._foreach_mul_([p.grad for p in model.parameters() if p.grad is not None], 0.5)

    losses = []
    with optimizer_hooks.register_optimizer_step_pre_hook(halve):
        for x, y in batches(steps):
            losses.append(step(x, y))
            schedule.step()
    return ended(losses, model)


class Giving(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure) or self.param_groups[0]["params"][0].norm()


@situation(replays=False, code="blocker")
def a_step_outside_that_returns_a_tensor(wrap: Wrap, steps: int) -> Trajectory:
    schedule = functools.partial(lr_scheduler.ExponentialLR, gamma=0.9)
    return trained(wrap, steps, lambda m: Giving(m.parameters(), lr=0.1), schedule=schedule)


@situation()
def generator_and_discriminator(wrap: Wrap, steps: int) -> Trajectory:
    """The first backward adds to gradients of the judge that the last call has left."""
    torch.manual_seed(3)
    maker = nn.Sequential(nn.Linear(8, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).to(DEVICE)
    judge = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)).to(DEVICE)
    of_maker, of_judge = fused(maker, 1e-3), fused(judge, 1e-3)

    @wrap
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        of_maker.zero_grad()
        fake = maker(torch.randn(x.shape[0], 8, device=x.device))
        lured = F.softplus(-judge(fake)).mean()
        lured.backward()
        of_maker.step()
        of_judge.zero_grad()
        loss = F.softplus(-judge(x)).mean() + F.softplus(judge(fake.detach())).mean()
        loss.backward()
        of_judge.step()
        return loss.detach(), lured.detach()

    losses = [part for x, _ in batches(steps) for part in step(x)]
    return ended(losses, maker, judge)


# --- Mixed precision -----------------------------------------------------------------------------


def _scaled(
    wrap: Wrap,
    steps: int,
    make: Callable[[nn.Module], torch.optim.Optimizer],
    clip: bool = False,
    overflows: Callable[[int], bool] = lambda index: False,
) -> Trajectory:
    model = mlp()
    optimizer = make(model)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**10, growth_interval=20)

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.float16 if DEVICE == "cuda" else torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    losses: list[Any] = []
    for index, (x, y) in enumerate(batches(steps)):
        losses.append(step(x * float("inf") if overflows(index) else x, y))
    scale = scaler.get_scale()
    result = ended([loss for loss in losses if loss == loss], model)
    return Trajectory([*result.losses, scale], result.weights)


@situation()
def scaler_with_skipped_steps(wrap: Wrap, steps: int) -> Trajectory:
    return _scaled(wrap, steps, fused, overflows=lambda index: index % 17 in (2, 9))


@situation()
def scaler_eager_that_unscales_and_clips(wrap: Wrap, steps: int) -> Trajectory:
    return _scaled(
        wrap,
        steps,
        lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2),
        clip=True,
        overflows=lambda index: index % 23 == 8,
    )


# --- Gradients -----------------------------------------------------------------------------------


@situation()
def accumulation_over_calls(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    optimizer = fused(model)

    @wrap
    def micro(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        return loss.detach()

    losses = []
    for index, (x, y) in enumerate(batches(steps)):
        losses.append(micro(x, y))
        if index % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    return ended(losses, model)


@situation()
def no_optimizer_of_torch(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        model.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                if p.grad is not None:
                    p.add_(p.grad, alpha=-0.05)
        return loss.detach()

    return ended([step(x, y) for x, y in batches(steps)], model)


# --- Batches -------------------------------------------------------------------------------------


@situation()
def changing_batch_sizes(wrap: Wrap, steps: int) -> Trajectory:
    return trained(wrap, steps, size=lambda index: (32, 16, 24)[index * index % 3])


@situation(code="max_graphs")
def more_batch_sizes_than_graphs(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    step = wrap(plain_step(model, fused(model)), max_graphs=2)
    sizes = (16, 20, 24, 28)
    return ended([step(x, y) for x, y in batches(steps, lambda index: sizes[index % 4])], model)


# --- The model -----------------------------------------------------------------------------------


@situation()
def batch_norm_and_dropout(wrap: Wrap, steps: int) -> Trajectory:
    return trained(wrap, steps, dropout=0.3, norm=True)


@situation()
def random_numbers_between_the_calls(wrap: Wrap, steps: int) -> Trajectory:
    def after(index: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        torch.rand(index % 5 + 1, device=DEVICE)

    return trained(wrap, steps, after=after, dropout=0.3)


@situation()
def a_generator_of_its_own(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    generator = torch.Generator(DEVICE).manual_seed(9)

    def loss_of(scores: Tensor, y: Tensor) -> Tensor:
        noise = torch.empty_like(scores).normal_(generator=generator)
        return F.cross_entropy(scores + 0.1 * noise, y)

    step = wrap(plain_step(model, fused(model), loss_of))
    return ended([step(x, y) for x, y in batches(steps)], model)


@situation()
def frozen_layers_that_thaw(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    model[0].requires_grad_(False)
    optimizer = fused(model)
    step = wrap(plain_step(model, optimizer))
    losses = []
    for index, (x, y) in enumerate(batches(steps)):
        if index == steps // 2:
            model[0].requires_grad_(True)
        losses.append(step(x, y))
    return ended(losses, model)


@situation()
def parameters_given_other_memory(wrap: Wrap, steps: int) -> Trajectory:
    def after(index: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        if index == steps // 2:
            for p in model.parameters():
                p.data = p.data.clone() * 0.5

    return trained(wrap, steps, after=after)


@situation()
def an_average_kept_inside(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    average = copy.deepcopy(model)
    train = plain_step(model, fused(model))

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = train(x, y)
        with torch.no_grad():
            for kept, p in zip(average.parameters(), model.parameters()):
                kept.lerp_(p, 0.05)
        return loss

    return ended([step(x, y) for x, y in batches(steps)], model, average)


# --- Around the step -----------------------------------------------------------------------------


@situation()
def an_agent_that_acts_with_gradients(wrap: Wrap, steps: int) -> Trajectory:
    """What it keeps of its model's forward holds nodes of autograd that were made outside."""
    model = mlp()
    optimizer = fused(model)
    step = wrap(plain_step(model, optimizer))
    actions, losses = [], []
    for index, (x, y) in enumerate(batches(steps)):
        if index % 3 == 0:
            scores = model(x)
            actions.append(float(scores.argmax(1).sum()))
        losses.append(step(x, y))
    return ended([*losses, *actions], model)


@situation()
def train_and_eval_mode_in_turn(wrap: Wrap, steps: int) -> Trajectory:
    def after(index: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        model.train(index % 4 != 1)

    return trained(wrap, steps, after=after, dropout=0.4, norm=True)


@situation()
def inference(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp(norm=True).eval()

    @wrap
    def predict(x: Tensor) -> Tensor:
        with torch.no_grad():
            return model(x).softmax(-1)  # type: ignore[no-any-return]

    return ended([predict(x).max() for x, _ in batches(steps)], model)


@situation()
def state_loaded_after_the_capture(wrap: Wrap, steps: int) -> Trajectory:
    saved: list[Any] = []

    def after(index: int, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        if index == steps // 3:
            saved.extend(copy.deepcopy((model.state_dict(), optimizer.state_dict())))
        if index == 2 * steps // 3:
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])

    return trained(wrap, steps, lambda m: torch.optim.Adam(m.parameters(), lr=1e-2), after=after)


@situation()
def two_steps_in_any_order(wrap: Wrap, steps: int) -> Trajectory:
    """Two functions of one model, each with several graphs."""
    model = mlp(dropout=0.2)
    optimizer = fused(model)
    ahead = wrap(plain_step(model, optimizer))
    back = wrap(plain_step(model, optimizer, lambda x, y: -0.1 * F.cross_entropy(x, y)))

    order, losses = random.Random(5), []
    for x, y in batches(steps, lambda index: (32, 16)[index * index % 5 % 2]):
        losses.append((ahead if order.random() < 0.6 else back)(x, y))
    return ended(losses, model)


@situation()
def gradients_of_several_graphs(wrap: Wrap, steps: int) -> Trajectory:
    """Each kind of call leaves gradients of another half of the model, which are used later."""
    model = mlp()
    optimizer = fused(model)

    @wrap
    def half(x: Tensor, y: Tensor, first: bool) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        part = list(model[0].parameters()) if first else list(model[2:].parameters())
        for p, g in zip(part, torch.autograd.grad(loss, part)):
            p.grad = g
        return loss.detach()

    losses = []
    for index, (x, y) in enumerate(batches(steps)):
        losses.append(half(x, y, index % 2 == 0))
        if index % 3 == 2:
            optimizer.step()
    return ended(losses, model)


# --- Hooks ---------------------------------------------------------------------------------------


@situation()
def a_hook_that_computes_the_weight(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch has a form without hooks
        nn.utils.weight_norm(model[0])
    step = wrap(plain_step(model, fused(model)))
    return ended([step(x, y) for x, y in batches(steps)], model)


# --- Steps that have to stay eager ---------------------------------------------------------------


def _spoilt(wrap: Wrap, steps: int, spoil: Callable[[Tensor], Any]) -> Trajectory:
    def loss_of(scores: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(scores, y)
        factor = spoil(loss)
        return loss if factor is None else loss * factor

    model = mlp(dropout=0.1)
    step = wrap(plain_step(model, fused(model), loss_of))
    return ended([step(x, y) for x, y in batches(steps)], model)


@situation(replays=False, code="side_effect")
def appends_to_a_list(wrap: Wrap, steps: int) -> Trajectory:
    seen: list[Tensor] = []
    result = _spoilt(wrap, steps, lambda loss: seen.append(loss.detach()))
    return Trajectory([*result.losses, *map(float, seen)], result.weights)


@situation(replays=False, code="blocker")
def reads_a_value(wrap: Wrap, steps: int) -> Trajectory:
    return _spoilt(wrap, steps, lambda loss: 2.0 if loss.item() > 1.5 else 1.0)


@situation(replays=False, code="capture_failed")
def a_capture_that_fails(wrap: Wrap, steps: int) -> Trajectory:
    def spoil(loss: Tensor) -> Tensor | None:
        if CAPTURING():
            loss.item()
        return loss * 0 + 1

    return _spoilt(wrap, steps, spoil)


@situation(replays=False, code="side_effect")
def a_step_of_a_scheduler_inside(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    optimizer = fused(model)
    scheduler = lr_scheduler.ExponentialLR(optimizer, 0.98)
    train = plain_step(model, optimizer)

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = train(x, y)
        scheduler.step()
        return loss

    return ended([step(x, y) for x, y in batches(steps)], model)


@situation(replays=False, code="external")
def a_tensor_that_is_another_in_each_call(wrap: Wrap, steps: int) -> Trajectory:
    source = iter([torch.full((), 1.0 + i / 10, device=DEVICE) for i in range(steps)])
    return _spoilt(wrap, steps, lambda loss: next(source))


@situation(replays=False, code="side_effect")
def writes_into_an_argument(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    train = plain_step(model, fused(model))

    @wrap
    def step(x: Tensor, y: Tensor) -> Tensor:
        return train(x.mul_(0.5), y)

    losses: list[Any] = []
    for x, y in batches(steps):
        losses += [step(x, y), x.sum()]
    return ended(losses, model)


@situation(replays=False, code="output")
def returns_a_number_that_changes(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    train, names = plain_step(model, fused(model)), iter(range(10**6))

    @wrap
    def step(x: Tensor, y: Tensor) -> tuple[Tensor, int]:
        return train(x, y), next(names)

    return ended([part for x, y in batches(steps) for part in step(x, y)], model)


@situation()
def arguments_that_share_memory(wrap: Wrap, steps: int) -> Trajectory:
    """Windows of one tensor that overlap, and in some calls one window twice."""
    model = mlp()
    train = plain_step(model, fused(model))

    @wrap
    def step(x: Tensor, more: Tensor, y: Tensor) -> Tensor:
        return train(x + more, y)

    losses = []
    for index, (x, y) in enumerate(batches(steps)):
        both = torch.cat((x, x.flip(0)))
        first, second = both[: len(x)], both[1 : len(x) + 1]
        losses.append(step(first, second if index % 5 == 4 else first, y))
    return ended(losses, model)


@situation(code="scaler")
def a_scaler_in_the_middle_of_an_iteration(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    optimizer = fused(model)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=2.0**10)

    @wrap
    def finish() -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()

    losses = []
    for index, (x, y) in enumerate(batches(steps)):
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if index > 8 and index % 3 == 0:
            scaler.unscale_(optimizer)
        finish()
        losses.append(loss.detach())
    return ended(losses, model)


@situation(replays=False, code="unstable")
def a_number_that_changes_in_each_call(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    train = plain_step(model, fused(model))

    @wrap
    def step(x: Tensor, y: Tensor, index: int) -> Tensor:
        return train(x / (1 + index), y)

    return ended([step(x, y, i) for i, (x, y) in enumerate(batches(steps))], model)


@situation(code="thread")
def calls_from_two_threads(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    step = wrap(plain_step(model, fused(model)))
    losses: list[Any] = []
    for index, (x, y) in enumerate(batches(steps)):
        if index % 7 == 6:
            thread = threading.Thread(target=lambda x=x, y=y: losses.append(step(x, y)))
            if DEVICE == "cuda":
                torch.cuda.synchronize()
            thread.start()
            thread.join()
            if DEVICE == "cuda":
                torch.cuda.synchronize()
        else:
            losses.append(step(x, y))
    return ended(losses, model)


@situation()
def a_step_that_calls_a_step(wrap: Wrap, steps: int) -> Trajectory:
    model = mlp()
    optimizer = fused(model)

    @wrap
    def inner(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    @wrap
    def outer(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = inner(x, y)
        optimizer.step()
        return loss

    return ended([outer(x, y) for x, y in batches(steps)], model)
