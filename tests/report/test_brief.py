"""The report in a terminal fits a screen; -v shows the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope.model import Profile
from launchscope.report import RenderOptions, reporter_named
from launchscope.report.documents.labels import VERDICTS
from launchscope.report.documents.next_step import adopt_commands
from launchscope.rules import advise
from launchscope.workflows.load_input import ReadOptions, profile_of
from tests.rules.profiles import blocked, gpu_bound, launched, profile, rehearsal

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
def test_it_fits_a_screen_at_80_columns_and_begins_with_the_answer(path: Path) -> None:
    made = profile_of(path, ReadOptions(15.0, None))
    lines = shown(made, 80)
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    assert made.verdict is not None
    assert VERDICTS[made.verdict.recommendation][0].upper() in lines[0]
    commands = [*adopt_commands(made), *COMMANDS]
    at = next(at for at, line in enumerate(lines) if line.strip() == commands[0])
    assert [line.strip() for line in lines[at : at + len(commands)]] == commands
    text = "\n".join(lines)
    for needed in ("  step ", "  iteration ", "GPU busy", COMMANDS[0]):
        assert needed in text
    # Nothing is cropped: what is there stands whole in the whole report, too, but for its layout.
    whole = " ".join(" ".join(shown(made, 400, brief=False)).split())
    for instruction in made.verdict.instructions[:2]:
        assert instruction in " ".join(text.split())
        assert instruction in whole


@pytest.mark.parametrize("make", [profile, gpu_bound, blocked, rehearsal])
@pytest.mark.parametrize("width", [60, 80, 200])
def test_every_kind_of_profile_has_one_at_every_width(make: object, width: int) -> None:
    assert callable(make)
    lines = shown(advise(make()), width)
    assert max(map(len, lines)) <= width


def test_doubts_are_not_left_out() -> None:
    made = advise(profile())
    made = replace(made, notes=("one", "two", "three", "four"))
    text = "\n".join(shown(made)) + "\n".join(shown(launched()))
    assert 'launchscope.save(..., "report.html") writes the whole report' in text
    assert "- Three." in text
    assert "- Four." not in text
    samples = replace(
        made.metrics["iteration_ms"], samples=(8.0, 8.5, 9.0, 12.0, 14.0, 14.5), value=9.39
    )
    doubtful = advise(replace(made, metrics=made.metrics | {"iteration_ms": samples}))
    assert "varies very widely" in " ".join(shown(doubtful))
    whole = "\n".join(shown(launched(), brief=False))
    for heading in (
        "Top kernels",
        "GPU idle, waiting for launches, by line",
        "Launches by operator",
    ):
        assert heading not in text
        assert heading in whole


def test_a_rehearsal_says_once_that_nothing_ran_on_a_gpu() -> None:
    assert " ".join(shown(advise(rehearsal()))).count("othing ran on a GPU") == 1
