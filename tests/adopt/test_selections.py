"""What the call of a step passes in place of a part of a statement."""

from __future__ import annotations

from pathlib import Path

from launchscope.adopt.observation import Cause
from launchscope.adopt.selections import Selections
from launchscope.adopt.source import Source


def selections(text: str, *reading: str) -> tuple[str, list[str]]:
    """`reading`: expressions of the first line that read host memory."""
    source = Source(Path("a.py"), text, "utf-8")
    changing, inside = (frozenset(names.split()) for names in ("i", "loss out"))
    places = [(text.index(part), text.index(part) + len(part)) for part in reading]
    causes = [Cause("copied", "", 1, text, columns=place) for place in places]
    found = Selections(source, source.tree.body, changing, inside, causes)
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


def test_what_reads_host_memory_is_passed() -> None:
    text = "loss = criterion(model(x.to(device)).flatten(1), y.cuda().long())\n"
    assert selections(text) == (text, [])
    assert selections(text, "x.to(device)", "y.cuda()") == (
        "loss = criterion(model(x_part).flatten(1), y_part.long())\n",
        ["x.to(device)", "y.cuda()"],
    )
    assert selections("out = model(data[i].cuda())\n", "data[i].cuda()")[1] == ["data[i].cuda()"]
    assert selections("out = model(torch.tensor(w))\n", "torch.tensor(w)")[1] == ["torch.tensor(w)"]
    assert selections("out = model(out.cuda())\n", "out.cuda()")[1] == []
