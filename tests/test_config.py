"""Where settings come from, which wins, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from launchscope.config import BATCH_VARIABLE, NO_CACHE_VARIABLE, Settings, load_settings
from launchscope.errors import ConfigError, UsageError
from launchscope.graphed.step import SWITCH


def load(
    folder: Path, toml: str = "", environ: dict[str, str] | None = None, **flags: Any
) -> Settings:
    """Settings as read in a folder whose pyproject.toml has this [tool.launchscope]."""
    if toml:
        (folder / "pyproject.toml").write_text(f"[tool.launchscope]\n{toml}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(os, "environ", environ or {})
        return load_settings(flags)


def test_defaults_are_those_of_the_design(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings == Settings()
    assert (settings.warmup, settings.timing, settings.trace) == (10, 30, 5)
    assert (settings.inspect, settings.replay, settings.verify) == (3, 30, 4)
    assert (settings.threshold, settings.expected_steps, settings.max_runs) == (15.0, None, 4)


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    environ = {"LAUNCHSCOPE_TIMING": "60", "LAUNCHSCOPE_REPLAY": "40", "OTHER": "x"}
    settings = load(tmp_path, "timing = 50\nreplay = 50\nverify = 2", environ, timing="70")
    assert (settings.timing, settings.replay, settings.verify) == (70, 40, 2)


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


@pytest.mark.parametrize("raw", ["many", "-1%", "101%", "nan", True, "", "15%%", [15]])
def test_wrong_thresholds_are_refused(tmp_path: Path, raw: Any) -> None:
    with pytest.raises(UsageError, match="--threshold: expected a percentage such as 15%"):
        load(tmp_path, threshold=raw)


def test_the_error_for_an_ambiguous_threshold_shows_both_meanings(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, threshold="0.15")
    assert caught.value.hint == "write 15% or 0.15%"


def test_a_number_that_python_does_not_read_is_no_valid_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(tmp_path, f"timing = {'9' * 5000}")


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("timing = -1", "timing: expected a whole number, 0 or more, not -1"),
        ("timing = true", "timing: expected a whole number, 0 or more, not True"),
        ("timing = 1.5", "timing: expected a whole number"),
        ("expected-steps = 0", "expected-steps: expected a whole number, 1 or more, not 0"),
        ("full = 'maybe'", "full: expected true or false, not maybe"),
        ("timeout = 0", "timeout: expected a number of seconds above 0, not 0"),
        ("step-from = 'markers'", "step-from: expected one of auto, marker"),
        ("python = 3", "python: expected the path of a Python interpreter, not 3"),
    ],
)
def test_values_of_the_wrong_form_are_refused(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, toml)
    assert message in str(caught.value)
    assert "pyproject.toml" in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_unknown_setting_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown setting 'treshold'") as caught:
        load(tmp_path, "treshold = 10")
    assert caught.value.hint == "did you mean threshold?"


def test_an_unknown_variable_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LAUNCHSCOPE_WARMUPS") as caught:
        load(tmp_path, environ={"LAUNCHSCOPE_WARMUPS": "3"})
    assert caught.value.hint == "did you mean LAUNCHSCOPE_WARMUP?"


def test_in_a_profiled_script_unknown_variables_are_ignored(tmp_path: Path) -> None:
    environ = {"LAUNCHSCOPE": "1", "LAUNCHSCOPE_INTERNAL": "x"}
    assert load(tmp_path, environ=environ) == Settings()


@pytest.mark.parametrize("name", [BATCH_VARIABLE, NO_CACHE_VARIABLE, SWITCH])
def test_a_variable_that_is_read_elsewhere_is_not_a_setting(tmp_path: Path, name: str) -> None:
    assert load(tmp_path, environ={name: "8"}) == Settings()


def test_damaged_toml_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.launchscope\n")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load(tmp_path)


def test_a_missing_chosen_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_settings(config=tmp_path / "none.toml")


def test_the_schedule_has_the_counts() -> None:
    schedule = Settings(warmup=2, timing=7, full=True, step_from="marker").schedule
    assert (schedule.warmup, schedule.timing, schedule.full) == (2, 7, True)
    assert schedule.step_from == "marker"
