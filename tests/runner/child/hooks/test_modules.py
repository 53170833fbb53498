"""What is read of the arguments of a forward."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch

from launchscope.runner.child.hooks.modules import cache_class, input_shapes


def test_a_node_that_holds_its_parent_is_read_once() -> None:
    root: dict[str, object] = {"x": torch.ones(2)}
    root["children"] = [{"x": torch.ones(3), "parent": root}]
    empty: list[object] = []
    empty.append(empty)
    shapes = input_shapes(torch, (empty, root), {"again": empty})
    assert [shape.dims for shape in shapes] == [(2,), (3,)]


class Cache:
    """As in transformers: a list of layers, each with its keys and values."""

    def __init__(self, length: int):
        self.layers = [Layer(length) for _ in range(2)]


class Layer:
    def __init__(self, length: int):
        self.keys, self.values = torch.ones(1, 4, length), torch.ones(1, 4, length)
        self.length, self.filled = length, True


class GrowingCache(Cache):
    pass


def test_what_an_object_holds_is_an_input_and_what_a_module_holds_is_not() -> None:
    arguments: dict[str, Any] = {"past": GrowingCache(5), "model": torch.nn.Linear(2, 2)}
    shapes = input_shapes(torch, (torch.ones(1, 1),), arguments)
    assert [shape.dims for shape in shapes] == [(1, 1), *[(1, 4, 5)] * 4]


def test_an_object_with_more_than_anybody_hands_over_is_given_up() -> None:
    held = Layer(1)
    held.keys = [Layer(1) for _ in range(100_000)]  # type: ignore[assignment]
    assert len(input_shapes(torch, (held,), {})) == 64


def test_a_cache_of_transformers_is_known_by_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = {"input_ids": torch.ones(1, 1), "past_key_values": GrowingCache(5)}
    assert cache_class((), arguments) is None
    library = ModuleType("transformers.cache_utils")
    vars(library)["Cache"] = Cache
    monkeypatch.setitem(sys.modules, "transformers.cache_utils", library)
    assert cache_class((), arguments) == "GrowingCache"
    assert cache_class((torch.ones(1),), {}) is None
