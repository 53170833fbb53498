"""The report in a terminal fits a screen and ends with the answer; -v shows the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.model import Comparison, Profile, Target
from launchscope.parser.files import read_saved
from launchscope.report import RenderOptions, reporter_named
from launchscope.report.documents.labels import VERDICTS
from launchscope.report.documents.next_step import adopt_commands
from launchscope.rules import advise
from launchscope.workflows.load_input import ReadOptions, profile_of
from tests.rules.profiles import blocked, gpu_bound, profile, rehearsal

ROOT = Path(__file__).parents[2]
MEASURED = [
    *sorted((ROOT / "sample_workloads/recordings").iterdir()),
    *sorted((ROOT / "tests/truth").glob("*.json.gz")),
]
COMMANDS = ("launchscope rules LS001",)


def shown(value: Profile, width: int = 100, *, brief: bool = True) -> list[str]:
    options = RenderOptions(width=width, brief=brief, next_commands=COMMANDS)
    text = reporter_named("terminal").render(value, options)
    assert isinstance(text, str)
    return text.splitlines()


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.name)
def test_it_fits_a_screen_at_100_columns(path: Path) -> None:
    made = profile_of(path, ReadOptions(15.0, None))
    lines = shown(made)
    assert len(lines) <= 35
    assert max(map(len, lines)) <= 100
    assert made.verdict is not None
    verdict = VERDICTS[made.verdict.recommendation][0].upper()
    assert any(line.strip().startswith(verdict) for line in lines[-2:])
    commands = [*adopt_commands(made), *COMMANDS]
    at = next(at for at, line in enumerate(lines) if line.strip() == commands[0])
    assert [line.strip() for line in lines[at : at + len(commands)]] == commands
    # Nothing is cropped: what is there stands whole in the whole report, too, but for its layout.
    whole = " ".join(" ".join(shown(made, 400, brief=False)).split())
    for instruction in made.verdict.instructions[: 1 if adopt_commands(made) else 2]:
        assert instruction in " ".join(" ".join(lines).split())
        assert instruction in whole


@pytest.mark.parametrize("path", MEASURED, ids=lambda path: path.name)
def test_it_fits_a_screen_at_80_columns(path: Path) -> None:
    lines = shown(profile_of(path, ReadOptions(15.0, None)), 80)
    assert len(lines) <= 36
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for needed in ("  step ", "  iteration ", "GPU busy", COMMANDS[0]):
        assert needed in text


@pytest.mark.parametrize("make", [profile, gpu_bound, blocked, rehearsal])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_kind_of_profile_has_one_at_every_width(make: object, width: int) -> None:
    assert callable(make)
    lines = shown(advise(make()), width)
    assert max(map(len, lines)) <= width


def test_what_is_left_out_is_counted_and_doubts_are_not_left_out() -> None:
    made = advise(profile())
    made = replace(made, notes=("one", "two", "three", "four"))
    text = "\n".join(shown(made))
    assert "-v or -o report.html shows" in text
    assert "1 note more" in text
    assert "- Two." in text
    samples = replace(
        made.metrics["iteration_ms"], samples=(8.0, 8.5, 9.0, 12.0, 14.0, 14.5), value=9.39
    )
    doubtful = advise(replace(made, metrics=made.metrics | {"iteration_ms": samples}))
    assert "varies very widely" in " ".join(shown(doubtful))
    assert "Top kernels" not in text
    assert "Top kernels" in "\n".join(shown(made, brief=False))


@pytest.mark.parametrize("is_script", [False, True])
def test_the_instructions_shown_and_counted_are_all_there_are(is_script: bool) -> None:
    made = replace(advise(profile()), notes=())
    made = made if is_script else replace(made, target=Target("callable", "train"))
    assert made.verdict is not None
    text = " ".join(" ".join(shown(made)).split())
    seen = sum(instruction in text for instruction in made.verdict.instructions)
    left = len(made.verdict.instructions) - seen
    assert seen == (2 if is_script else 3)
    assert f"{left} instruction" in text


def test_a_rehearsal_says_once_that_nothing_ran_on_a_gpu() -> None:
    assert " ".join(shown(advise(rehearsal()))).count("othing ran on a GPU") == 1


def test_the_last_line_says_how_the_answer_is_known() -> None:
    stubbed = profile_of(ROOT / "sample_workloads/recordings/item_in_step", ReadOptions(15.0, None))
    assert shown(advise(profile()))[-1].endswith("(2.67x), measured in the loop")
    assert shown(stubbed)[-1].endswith("(5.39x), by subtraction, without the blockers")
    assert shown(advise(blocked()))[-1].endswith(", predicted")
    assert shown(advise(rehearsal()))[-1].endswith("per step, times not measured")


def test_what_is_left_out_is_in_the_page_if_one_is_written() -> None:
    options = RenderOptions(brief=True, page="page.html")
    text = str(reporter_named("terminal").render(advise(profile()), options))
    assert "-v or page.html shows" in text


def test_a_long_report_of_something_else_ends_with_its_answer() -> None:
    comparison = ROOT / "tests/benchmarks/results/compare_small_gpt.json"
    made = read_saved(comparison, Comparison)
    text = str(reporter_named("terminal").render(made, RenderOptions(width=40, brief=True)))
    assert text.splitlines()[-3].startswith("  COMPARISON  The gain is above 15 %")
