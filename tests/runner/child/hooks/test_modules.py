"""What is read of the arguments of a forward."""

from __future__ import annotations

import torch

from launchscope.runner.child.hooks.modules import input_shapes


def test_a_node_that_holds_its_parent_is_read_once() -> None:
    root: dict[str, object] = {"x": torch.ones(2)}
    root["children"] = [{"x": torch.ones(3), "parent": root}]
    empty: list[object] = []
    empty.append(empty)
    shapes = input_shapes(torch, (empty, root), {"again": empty})
    assert [shape.dims for shape in shapes] == [(2,), (3,)]
