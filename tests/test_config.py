"""Where settings come from, which wins, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launchscope.config import Settings, load_settings
from launchscope.errors import ConfigError, UsageError


def load(folder: Path, toml: str = "", **flags: Any) -> Settings:
    """Settings as read in a folder whose pyproject.toml has this [tool.launchscope]."""
    if toml:
        (folder / "pyproject.toml").write_text(f"[tool.launchscope]\n{toml}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return load_settings(flags)


def test_defaults_are_those_of_the_design(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings == Settings()
    assert (settings.warmup, settings.timing, settings.trace) == (10, 30, 5)
    assert (settings.inspect, settings.replay, settings.verify) == (3, 30, 4)
    assert (settings.threshold, settings.expected_steps, settings.max_runs) == (15.0, None, 4)


def test_flags_override_the_file(tmp_path: Path) -> None:
    settings = load(tmp_path, "timing = 50\nverify = 2", timing="70")
    assert (settings.timing, settings.verify) == (70, 2)


def test_a_flag_that_was_not_given_changes_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "timing = 50", timing=None).timing == 50


def test_the_nearest_pyproject_above_is_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.launchscope]\nstep-from = 'optimizer'\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert load(inner).step_from == "optimizer"


def test_a_pyproject_without_launchscope_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert load(tmp_path) == Settings()


def test_a_chosen_file_may_have_the_settings_at_its_top_level(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("threshold = '20%'\nkeep_trace = true\n")
    settings = load_settings(config=file)
    assert (settings.threshold, settings.keep_trace) == (20.0, True)


@pytest.mark.parametrize(
    ("raw", "percent"), [("15%", 15.0), (" 7.5 % ", 7.5), (15, 15.0), ("0.5%", 0.5), (0, 0.0)]
)
def test_thresholds(tmp_path: Path, raw: Any, percent: float) -> None:
    assert load(tmp_path, threshold=raw).threshold == percent


PERCENTAGE = "--threshold: expected a percentage such as 15%"
WHOLE = "expected a whole number"


@pytest.mark.parametrize(
    ("given", "error", "message", "hint"),
    [
        *(({"threshold": raw}, UsageError, PERCENTAGE, None)
          for raw in ("many", "-1%", "101%", "nan", True, "", "15%%", [15])),
        ({"threshold": "0.15"}, UsageError, "--threshold", "write 15% or 0.15%"),
        ({"toml": f"timing = {'9' * 5000}"}, ConfigError, "not valid TOML", None),
        ({"toml": "[timing"}, ConfigError, "not valid TOML", None),
        ({"toml": "timing = -1"}, ConfigError, f"timing: {WHOLE}, 0 or more, not -1", None),
        ({"toml": "timing = true"}, ConfigError, f"timing: {WHOLE}, 0 or more, not True", None),
        ({"toml": "timing = 1.5"}, ConfigError, f"timing: {WHOLE}", None),
        ({"toml": "expected-steps = 0"}, ConfigError, f"{WHOLE}, 1 or more, not 0", None),
        ({"toml": "full = 'maybe'"}, ConfigError, "full: expected true or false, not maybe", None),
        ({"toml": "timeout = 0"}, ConfigError, "expected a number of seconds above 0, not 0", None),
        ({"toml": "step-from = 'markers'"}, ConfigError, "expected one of auto, marker", None),
        ({"toml": "python = 3"}, ConfigError, "the path of a Python interpreter, not 3", None),
        ({"toml": "treshold = 10"}, ConfigError, "treshold: there is no such setting",
         "did you mean threshold?"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_refused(
    tmp_path: Path, given: dict[str, Any], error: type[UsageError], message: str, hint: str | None
) -> None:
    with pytest.raises(error) as caught:
        load(tmp_path, **given)
    assert message in str(caught.value)
    assert ("pyproject.toml" in str(caught.value)) == ("toml" in given)
    assert caught.value.exit_code == 2
    assert hint in (None, caught.value.hint)


def test_a_missing_chosen_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_settings(config=tmp_path / "none.toml")
