"""The events of a step in words, with repeated rounds written once."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Literal, cast

import pytest

from launchscope import reason_text as reason_module
from launchscope.model import Reason, ReasonCode, StepBoundary, StepEvent
from launchscope.reason_text import TEXTS, as_written, reason_text, step_summary

PACKAGE = Path(reason_module.__file__).parent
MAKERS = (
    "Reason", "ReasonError", "NotVerifiedError", "StubMismatchError", "RefusedError",
)  # fmt: skip


def summary(*events: str) -> str:
    pairs = [event.partition(" ") for event in events]
    kinds = tuple(cast(StepEvent, event) for event, _, _ in pairs)
    return step_summary(
        StepBoundary("period", kinds, tuple(name for _, _, name in pairs), "full_step")
    )


@pytest.mark.parametrize(
    ("events", "text"),
    [
        (
            ("forward GPT", "backward", "optimizer AdamW"),
            "forward GPT > backward > optimizer AdamW",
        ),
        (("forward Net",) * 12, "forward Net x12"),
        (
            (*("forward Net", "backward") * 4, "optimizer SGD"),
            "(forward Net > backward) x4 > optimizer SGD",
        ),
        (
            ("forward D", "forward D", "backward", "optimizer Adam", "forward D", "backward"),
            "forward D x2 > backward > optimizer Adam > forward D > backward",
        ),
        (("optimizer LBFGS",), "optimizer LBFGS"),
        ((), ""),
    ],
)
def test_rounds_that_repeat_are_written_once(events: tuple[str, ...], text: str) -> None:
    assert summary(*events) == text


def test_an_optimizer_that_calls_its_closure_contains_the_rest() -> None:
    step = StepBoundary("period", ("optimizer",), ("Adam",), "full_step", closure=True)
    assert step_summary(step) == "optimizer Adam, with forward and backward inside"


@pytest.mark.parametrize(
    ("launches", "text"),
    [
        (1, "1 launch that repeats, copies included"),
        (2_500, "2,500 launches that repeat, copies included"),
        (None, "whole span"),
    ],
)
def test_a_step_of_a_trace_is_a_number_of_launches_or_all_of_it(
    launches: int | None, text: str
) -> None:
    boundary: Literal["launches", "none"] = "launches" if launches else "none"
    assert step_summary(StepBoundary(boundary, (), (), "full_step", launches=launches)) == text


@pytest.mark.parametrize(
    ("code", "written"),
    [(None, ".to() or .cpu()"), ("y = x.cpu()", ".cpu()"), ("y = x.to('cpu')", ".to()")],
)
def test_a_copy_is_named_as_the_line_has_it(code: str | None, written: str) -> None:
    assert as_written("aten._to_copy", code) == written


@pytest.mark.parametrize("code", TEXTS)
def test_a_reason_of_a_damaged_file_has_words_without_its_details(code: ReasonCode) -> None:
    text = reason_text(Reason(code))
    assert text
    assert not {"{", "}", "None"} & {*text, *text.split()}


@pytest.mark.parametrize(
    ("code", "details", "text"),
    [
        (
            "blockers_stubbed",
            {"count": 1},
            "1 blocking operation was replaced by recorded results",
        ),
        (
            "blockers_stubbed",
            {"count": 2},
            "2 blocking operations were replaced by recorded results",
        ),
        ("file_damaged", {"events": 1_200}, "1,200 events of the file are damaged"),
        ("no_stub", {"op": "aten.is_nonzero"}, "no recorded result can replace bool(tensor)"),
        (
            "not_faster",
            {"before_ms": 2.0, "after_ms": 12_000.0},
            "the changed script is not faster: 2.00 ms became 12.0 s",
        ),
        ("not_verified_within", {"seconds": 300}, "it was not verified within 5 min"),
    ],
)
def test_numbers_of_a_reason_have_their_unit_and_verb(
    code: ReasonCode, details: dict[str, str | int | float], text: str
) -> None:
    assert reason_text(Reason(code, details)) == text


def test_what_two_versions_of_a_script_print_is_quoted() -> None:
    details: dict[str, str | int | float] = {"original": "loss  `2.31`", "patched": "a" * 99}
    rest = f"`loss '2.31'`, and the changed script `{'a' * 80}...`"
    assert reason_text(Reason("printed_differs", details)) == f"the original prints {rest}"
    written = reason_text(Reason("printed_differs", {**details, "file": "log.csv", "patched": ""}))
    assert written.startswith("the original writes to `log.csv` `loss")
    assert written.endswith("no such line")


def test_every_code_of_a_reason_has_words_and_every_text_is_used() -> None:
    others = {PACKAGE / "reason_text.py", *(PACKAGE / "graphed").rglob("*.py")}
    sources = [path for path in PACKAGE.rglob("*.py") if path not in others]
    nodes = [node for path in sources for node in ast.walk(ast.parse(path.read_text()))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    given = {
        node.args[0].value
        for node in nodes
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in MAKERS
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert given - {*TEXTS, None} == set()
    assert set(TEXTS) - texts == set()


def test_the_code_of_another_version_stands_for_itself() -> None:
    assert reason_text(Reason("of_tomorrow")) == "of_tomorrow"
