"""The step of many loops moved into a graphed function, or refused; what moved computes the same.

`rewritten.txt` holds what becomes of each loop of `loops.py`. To accept an intended change, delete
it and run this file twice: the first run writes it and fails.
"""

from __future__ import annotations

import difflib
import functools
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from launchscope.adopt.patch import Patch, RefusedError
from launchscope.adopt.rewrite import find_step, rewrite
from launchscope.model import CallFrame, Reason, StepCall, StepCallKind
from launchscope.reason_text import reason_text
from tests.adopt.loops import LOOPS, SETUP
from tests.adopt.running import observed, run, seen

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info < (3, 11), reason="a line has no columns"),
]

GOLDEN = Path(__file__).parent / "rewritten.txt"
FILE = Path("/somewhere/train.py")
PLAIN = LOOPS["plain"]


def of(
    source: bytes, places: list[StepCall] | None = None, file: Path = FILE
) -> Patch | RefusedError:
    """What becomes of a script whose step is at these places, or where its run shows it."""
    if places is None:
        _, _, places = observed(source, file)
    try:
        step = find_step(places, lambda path: source)
        return rewrite(step, seen(step))
    except RefusedError as refused:
        return refused


@functools.cache
def rewritten(name: str) -> tuple[str, dict[str, torch.Tensor], Patch | RefusedError]:
    """What a loop prints and leaves, and what becomes of it."""
    source = (SETUP + LOOPS[name]).encode()
    printed, left, places = observed(source, FILE)
    return printed, left, of(source, places)


def shown(result: Patch | RefusedError) -> str:
    if isinstance(result, RefusedError):
        details = {"name": result.name or "", "why": result.why or ""}
        return f"refused, line {result.line}: {reason_text(Reason(result.reason, details))}\n"
    before, after = (
        text.decode().splitlines(keepends=True) for text in (result.before, result.after)
    )
    lines = [line for line in difflib.unified_diff(before, after, n=1) if line[:2] != "@@"]
    fixes = "".join(f", {key}" for key, _ in result.hunks)
    return f"{result.covered}{fixes}\n{''.join(lines[6:])}"


@functools.cache
def golden() -> dict[str, str]:
    if not GOLDEN.exists():
        sections = [f"===== {name}\n{shown(rewritten(name)[2])}" for name in LOOPS]
        GOLDEN.write_text("".join(sections))
        pytest.fail(f"{GOLDEN} was written: look at it, and run again")
    return golden_sections()


def golden_sections() -> dict[str, str]:
    found = GOLDEN.read_text().split("===== ")[1:] if GOLDEN.exists() else []
    return {name: text for name, _, text in (section.partition("\n") for section in found)}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_becomes_what_was_looked_at(name: str) -> None:
    assert shown(rewritten(name)[2]) == golden()[name]


def test_every_refusal_names_a_line() -> None:
    refused = [text for text in golden_sections().values() if text.startswith("refused")]
    assert len(refused) > 5
    assert all(re.match(r"refused, line \d+: ", text) for text in refused)


# Without the golden file, all of them: the test that writes it fails then.
REWRITTEN = [name for name in LOOPS if not golden_sections().get(name, "").startswith("refused")]


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_rewritten_loop_prints_and_leaves_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCHSCOPE_GRAPHED", "0")
    # A fix sets it, for the whole process.
    checks = torch.distributions.Distribution._validate_args
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", checks)
    printed, left, result = rewritten(name)
    assert isinstance(result, Patch)
    printed_now, left_now = run(result.after, FILE)
    assert printed_now == printed
    rounds = any(key == "fused" for key, _ in result.hunks)
    for key in left.keys() & left_now.keys():
        if rounds:
            torch.testing.assert_close(left_now[key], left[key])
        else:
            assert torch.equal(left_now[key], left[key]), key


@pytest.mark.parametrize("name", REWRITTEN)
def test_nothing_but_the_step_and_its_fixes_changes(name: str) -> None:
    """Every line outside of the step is still there, to the last sign."""
    result = rewritten(name)[2]
    assert isinstance(result, Patch)
    before = result.before.decode().splitlines()
    fixed = {line + more for _, line in result.hunks for more in range(4)}
    outside = Counter(
        line
        for number, line in enumerate(before, 1)
        if not result.first_line <= number <= result.last_line and number not in fixed
    )
    assert outside <= Counter(result.after.decode().splitlines())
    assert "from launchscope import graphed" in result.after.decode().splitlines()


# ----------------------------------------------------------------------------------- bad input


def patched(source: bytes) -> Patch:
    result = of(source)
    assert isinstance(result, Patch), result
    return result


def changed(transform: Callable[[str], str]) -> bytes:
    return transform(SETUP + PLAIN).encode()


def test_tabs_stay_tabs() -> None:
    result = patched(changed(lambda text: text.replace("    ", "\t")))
    assert b"\n\toptimizer.step()\n\treturn loss.detach()\n" in result.after
    assert b"    " not in result.after


def test_line_ends_of_windows_stay() -> None:
    result = patched(changed(lambda text: text.replace("\n", "\r\n")))
    assert result.after.count(b"\n") == result.after.count(b"\r\n")


def test_an_encoding_and_a_byte_order_mark_stay() -> None:
    latin = ("# -*- coding: latin-1 -*-\nname = 'é'\n" + SETUP + PLAIN).encode("latin-1")
    assert patched(latin).after.startswith(latin[:40])
    marked = b"\xef\xbb\xbf" + (SETUP + "name = 'é'\n" + PLAIN).encode()
    result = patched(marked)
    assert result.after.startswith(b"\xef\xbb\xbf")
    assert "é" in result.after.decode()


def test_a_file_without_a_last_newline_is_rewritten() -> None:
    lines = patched((SETUP + PLAIN.partition("print")[0].rstrip()).encode()).after.splitlines()
    assert lines[-2:] == [b"for x, y in loader:", b"    train_step(x, y)"]


def test_a_text_over_several_lines_is_not_indented() -> None:
    body = PLAIN.replace(
        "    loss.backward()", '    note = """\nas it\n  is"""\n    loss.backward()'
    )
    assert b'note = """\nas it\n  is"""\n' in patched((SETUP + body).encode()).after


def test_signs_of_several_bytes_in_front_of_a_selection_are_counted_right() -> None:
    body = PLAIN.replace("for x, y in loader", "for i, (x, y) in enumerate(loader)")
    body = body.replace("model(x), y)", 'model(x if "é𝄞" else None), loader[i][1])')
    result = patched((SETUP + body).encode())
    assert 'if "é𝄞" else None), loader_part)' in result.after.decode()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"x = (\n", "unreadable"),
        (b"# coding: no-such\nx = 1\n", "unreadable"),
        (b"x = '\xff'\n", "unreadable"),
        (b"x = 1\n" * 40, "changed"),
        (b"", "changed"),
    ],
)
def test_a_file_that_is_not_what_ran_is_refused(source: bytes, reason: str) -> None:
    _, _, places = observed((SETUP + PLAIN).encode(), FILE)
    result = of(source, places)
    assert isinstance(result, RefusedError)
    assert result.reason == reason


def test_a_file_that_is_gone_is_refused() -> None:
    def read(path: Path) -> bytes:
        raise FileNotFoundError(path)

    _, _, places = observed((SETUP + PLAIN).encode(), FILE)
    with pytest.raises(RefusedError, match="no_source"):
        find_step(places, read)


def place(what: StepCallKind, *frames: tuple[str, int, str]) -> StepCall:
    return StepCall(what, tuple(CallFrame(*frame) for frame in frames))


A, B = "/a.py", "/b.py"


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([], "no_place"),
        ([place("forward")], "no_place"),
        ([place("forward", (A, 3, "<module>")), place("backward")], "installed"),
        ([place("forward", (A, 1, "f")), place("backward", (B, 1, "g"))], "two_files"),
        ([place("forward", (A, 1, "f")), place("backward", (A, 1, "g"))], "two_functions"),
        ([place("forward", ("<stdin>", 1, "<module>"))], "no_source"),
        ([place(w, (A, 1, "<module>")) for w in ("forward", "backward", "step")], "no_loop"),
    ],
)
def test_places_that_no_statements_hold_are_refused(places: list[StepCall], reason: str) -> None:
    result = of(b"trainer.fit()\nfor _ in range(3):\n    pass\n", places)
    assert isinstance(result, RefusedError)
    assert result.reason == reason


INSIDE = """\
import numpy, random

class Noise(nn.Module):
    calls = 0

    def forward(self, x):
        {inside}
        return x

net = nn.Sequential(Noise(), model)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    optimizer.step()
print(f"{{loss.item():.5f}}")
"""


@pytest.mark.parametrize(
    ("inside", "reason", "why"),
    [
        ("self.calls += 1", "host_work", "changes `net.0.calls`"),
        ("x = x + numpy.random.rand()", "host_work", "draws random numbers of numpy random"),
        ("x = x + torch.tensor([1.0, 2, 3, 4])", "host_read", "make it once"),
        ("x = x * 2 if x.sum() > 0 else x", "host_read", "read it after the call"),
    ],
)
def test_a_refusal_names_the_line_of_the_function_that_the_step_calls(
    tmp_path: Path, inside: str, reason: str, why: str
) -> None:
    source = (SETUP + INSIDE.format(inside=inside)).encode()
    file = tmp_path / "train.py"
    file.write_bytes(source)
    result = of(source, file=file)
    assert isinstance(result, RefusedError)
    line = source.decode().splitlines().index(f"        {inside}") + 1
    assert (result.reason, result.file, result.line, result.name) == (reason, file, line, inside)
    assert why in (result.why or "")


@pytest.mark.parametrize("call", ["{}", 'log["loss"].append({})'])
def test_the_loop_of_a_function_is_found_wherever_its_value_goes(call: str) -> None:
    body = f"""\
def train_one_epoch():
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


log = {{"loss": []}}
for epoch in range(2):
    {call.format("train_one_epoch()")}
"""
    assert patched((SETUP + body).encode()).covered == "step"


def test_what_only_binds_names_can_stay_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt, where runs have shown that the first one is wrong."""
    monkeypatch.setenv("LAUNCHSCOPE_GRAPHED", "0")
    source = (SETUP + LOOPS["sizes_inside"]).encode()
    step = find_step(observed(source, FILE)[2], lambda path: source)
    found = seen(step)
    first, second = rewrite(step, found), rewrite(step, found, moves=False)
    assert first.after != second.after
    assert run(first.after, FILE)[0] == run(second.after, FILE)[0]
