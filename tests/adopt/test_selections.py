"""What the call of a step passes in place of a part of a statement."""

from __future__ import annotations

from pathlib import Path

from launchscope.adopt.selections import Selections
from launchscope.adopt.source import Source


def selections(text: str, *reading: int) -> tuple[str, list[str]]:
    source = Source(Path("a.py"), text, "utf-8")
    changing, inside, tensors = (frozenset(names.split()) for names in ("i", "loss out", "x y"))
    found = Selections(source, source.tree.body, changing, inside, tensors, frozenset(reading))
    return source.applied(found.edits), [code for _, code in found.parts]


def test_what_a_changing_number_selects_is_passed() -> None:
    assert selections("loss = model(data[i % 4], data[0])\n") == (
        "loss = model(data_part, data[0])\n",
        ["data[i % 4]"],
    )


def test_what_a_branch_selects_is_computed_where_the_branch_runs() -> None:
    changed, parts = selections("if weighted:\n    loss = loss * weights[i]\n")
    assert changed == "if weighted:\n    loss = loss * weights_part\n"
    assert parts == ["weights[i] if (weighted) else None"]


def test_what_the_step_has_made_is_selected_in_it() -> None:
    assert selections("loss = out[i]\n") == ("loss = out[i]\n", [])


def test_copies_of_batches_are_passed_on_lines_that_read_host_memory() -> None:
    text = "loss = criterion(model(x.to(device)).flatten(1), y.cuda().long())\n"
    assert selections(text) == (text, [])
    assert selections(text, 1) == (
        "loss = criterion(model(x_part).flatten(1), y_part)\n",
        ["x.to(device)", "y.cuda().long()"],
    )
    assert selections("out = model(data[i].cuda())\n", 1)[1] == ["data[i].cuda()"]
