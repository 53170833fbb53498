"""The events of a step in words, with repeated rounds written once."""

from __future__ import annotations

from typing import Literal, cast, get_args

import pytest

from launchscope.model import Reason, ReasonCode, StepBoundary, StepEvent
from launchscope.model.reason import RefusalReason
from launchscope.reason_text import as_written, reason_text, step_summary


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


@pytest.mark.parametrize("code", get_args(ReasonCode))
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


@pytest.mark.parametrize(
    ("original", "patched", "text"),
    [
        ("loss  2.31", "loss 2.40", "the original prints `loss 2.31`, and the changed script "
         "`loss 2.40`"),
        ("`a`", "", "the original prints `'a'`, and the changed script no such line"),
        (f"{'a' * 99}1", f"{'a' * 99}2{'b' * 99}", f"the original prints `...{'a' * 40}1`, and the "
         f"changed script `...{'a' * 40}2{'b' * 39}...`"),
    ],
)  # fmt: skip
def test_lines_that_differ_are_cut_to_where_they_do(original: str, patched: str, text: str) -> None:
    reason = Reason("printed_differs", {"original": original, "patched": patched})
    assert reason_text(reason) == text
    of_file = reason_text(Reason(reason.code, {**reason.details, "file": "log.csv"}))
    assert of_file == text.replace("prints", "writes to `log.csv`", 1)


def test_every_code_of_a_refusal_has_a_sentence() -> None:
    for code in get_args(RefusalReason):
        said = reason_text(Reason(code, {"name": "x"}))
        assert len(said.split()) > 3
