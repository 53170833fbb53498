"""What is read of the arguments of a forward."""

from __future__ import annotations

from typing import Any

import torch

from launchscope.runner.child.events.modules import input_shapes


class Cache:
    """As in transformers: a list of layers, each with its keys and values."""

    def __init__(self, layers: int):
        self.layers = [Layer() for _ in range(layers)]


class Layer:
    def __init__(self) -> None:
        self.keys, self.values, self.filled = torch.ones(4, 5), torch.ones(4, 5), True


class GrowingCache(Cache):
    pass


def test_tensors_in_containers_and_objects_are_inputs_and_those_of_a_module_are_not() -> None:
    root: dict[str, object] = {"x": torch.ones(2)}
    root["children"] = [{"x": torch.ones(3), "parent": root}]
    arguments: dict[str, Any] = {"past": GrowingCache(1), "model": torch.nn.Linear(2, 2)}
    shapes = input_shapes(torch, (root,), arguments)
    assert [shape.dims for shape in shapes] == [(2,), (3,), (4, 5), (4, 5)]
    assert len(input_shapes(torch, (Cache(1_000),), {})) == 64
