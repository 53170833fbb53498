"""What can be reached from the names around a step."""

from __future__ import annotations

import types
from collections import deque
from typing import Any

import torch

from launchscope.adopt.child.reachable import Reachable


def leaves(**roots: Any) -> dict[str, Any]:
    return dict(Reachable(torch, lambda file: "test_reachable" in file).leaves(roots))


class Meter:
    seen = 3

    def __init__(self) -> None:
        self.values = [1.0, 2.0]
        self.me = self

    def update(self) -> None:
        pass


def test_values_in_containers_and_attributes_have_the_names_of_code() -> None:
    found = leaves(stats={"loss": [1.0, 2.0]}, window=deque([4]), meter=Meter())
    assert found["stats['loss'][1]"] == 2.0
    assert found["window[0]"] == 4
    assert found["meter.values[0]"] == 1.0
    assert found["stats['loss']"] == "<list of 2>"


def test_what_a_class_and_a_closure_hold_counts() -> None:
    count = 5

    def step() -> int:
        return count

    found = leaves(meter=Meter(), step=step)
    assert found["meter.__class__.seen"] == 3
    assert found["step.<count>"] == 5
    assert not any("update" in name for name in found)


def test_each_object_is_found_once_by_the_shortest_way() -> None:
    inner = [1]
    found = leaves(a={"deep": inner}, b=inner)
    assert [name for name in found if name.endswith("[0]")] == ["b[0]"]


def test_libraries_are_not_looked_into() -> None:
    assert leaves(torch=torch, m=types.ModuleType("m")) == {"torch": "<module>", "m": "<module>"}
