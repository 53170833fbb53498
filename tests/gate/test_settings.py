"""[tool.launchscope.check] is read, and every mistake in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.config import load_settings
from launchscope.errors import ConfigError
from launchscope.gate.settings import CheckSettings, check_settings

WHOLE = """
[tool.launchscope]
timing = 12

[tool.launchscope.check]
baseline = "baselines/"
repeats = 5
strict = true

[tool.launchscope.check.limits]
launches_per_step = "+0"
launch_overhead_pct = "65%"
"""


def settings(folder: Path, text: str) -> CheckSettings:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return check_settings(path)


def test_the_whole_table_is_read_and_leaves_the_other_settings_alone(tmp_path: Path) -> None:
    found = settings(tmp_path, WHOLE)
    assert found.repeats == 5
    assert found.strict
    assert {n: limit.text for n, limit in found.limits.items() if limit} == {
        "launches_per_step": "+0",
        "launch_overhead_pct": "65%",
    }
    assert load_settings(config=tmp_path / "pyproject.toml").timing == 12


def test_a_baseline_of_the_settings_file_lies_beside_that_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below, elsewhere = tmp_path / "a" / "b", tmp_path / "c"
    below.mkdir(parents=True)
    elsewhere.mkdir()

    def baseline(folder: Path, text: str, **flags: object) -> str | None:
        (tmp_path / "pyproject.toml").write_text(f"[tool.launchscope.check]\nbaseline = '{text}'\n")
        monkeypatch.chdir(folder)
        return check_settings(
            None if folder != elsewhere else Path("../pyproject.toml"), flags
        ).baseline

    assert baseline(tmp_path, "base/") == "base/"
    assert baseline(below, "base/") == "../../base"
    assert baseline(elsewhere, "base.json") == "../base.json"
    assert baseline(below, "/srv/base") == "/srv/base"
    assert baseline(below, "base/", baseline="mine/") == "mine/"  # from where you are


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("limit = 3", "check.limit: there is no such setting", "did you mean limits?"),
        ("repeats = 0", "expected a whole number", ""),
        ("repeats = true", "expected a whole number", ""),
        ("strict = 'yes'", "expected true or false", ""),
        ("baseline = 3", "expected a text", ""),
        ("limits = 3", "expected a table", ""),
        ("limits = { launches = 3 }", "no metric 'launches'", "launches_per_step"),
    ],
)
def test_an_error_in_the_table_shows_its_key_and_file(
    line: str, message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(tmp_path, f"[tool.launchscope.check]\n{line}\n")
    assert message in str(caught.value)
    assert "pyproject.toml" in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_without_a_table_nothing_is_set(tmp_path: Path) -> None:
    assert settings(tmp_path, "[tool.other]\n") == CheckSettings()
    with pytest.raises(ConfigError, match="check: expected a table"):
        settings(tmp_path, "[tool.launchscope]\ncheck = 3\n")
