"""A forged file is refused as damaged, or shown: no figure in it and no depth of it is our bug."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from launchscope.errors import InputError, UsageError
from launchscope.model import KernelRow, Profile
from launchscope.parser import parse_saved
from launchscope.report import RenderOptions, all_reporters, render
from tests.report.test_golden import VALUES

Path = tuple[str | int, ...]
ABSURD = (1e308, 5e-324, -1, 0, 10**400, 10**149, -1e149, 1e-149)
REFUSED = (1e308, 5e-324, 10**400)


def figures_in(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where the numbers are: of a list, in its first item."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from figures_in(item, (*path, key))
    elif isinstance(value, list):
        yield from figures_in(value[:1] and value[0], (*path, 0))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def with_figure(value: Any, path: Path, figure: float) -> bytes:
    made = at = json.loads(json.dumps(value))
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = figure
    return json.dumps(made).encode()


def rendered(value: object) -> None:
    for reporter in all_reporters():
        if type(value) in reporter.renders:
            with contextlib.suppress(UsageError):  # nothing of it is what this format shows
                reporter.render(value, RenderOptions())


@pytest.mark.parametrize("name", ["comparison", "ranks", "check_gpu"])
def test_an_absurd_figure_is_refused_or_shown(name: str) -> None:
    value = VALUES[name]()
    plain = msgspec.to_builtins(value)
    paths = {tuple(str(part) for part in path): path for path in figures_in(plain)}
    for number, path in enumerate(paths.values()):
        if "profile" in path:
            continue
        for figure in ABSURD[number % 2 :: 2]:
            data = with_figure(plain, path, figure)
            if figure in REFUSED:
                with pytest.raises(InputError, match=r"forged\.json is damaged"):
                    parse_saved(data, "forged.json", type(value))
                continue
            with contextlib.suppress(InputError):  # a fraction in place of a count
                rendered(parse_saved(data, "forged.json", type(value)))


def test_a_file_nested_deeper_than_any_report_is_damaged() -> None:
    plain = msgspec.to_builtins(VALUES["blocked"]())
    plain["findings"][0]["more"] = {"deep": "HERE"}
    text = json.dumps(plain)
    for depth, says in ((60, "nested more than 50 deep"), (900, "nested"), (200_000, "")):
        deep = text.replace('"HERE"', "[" * depth + "]" * depth).encode()
        with pytest.raises(InputError, match=f"forged.json is damaged.*{says}"):
            parse_saved(deep, "forged.json", Profile)


def test_modules_in_hundreds_of_others_are_drawn() -> None:
    profile = VALUES["launched"]()
    assert isinstance(profile, Profile)
    assert profile.overhead_by_module
    names = tuple(f"m{depth}" for depth in range(2000))
    row = replace(profile.overhead_by_module[0], stack=names, idle_ms=1.0)
    rendered(replace(profile, overhead_by_module=(row,)))


def test_a_terminal_shows_both_ends_of_an_endless_name() -> None:
    profile = VALUES["launched"]()
    assert isinstance(profile, Profile)
    kernel = KernelRow("begin" + "x " * 50_000 + "end", 1, 2.0)
    note = "The note begins" + " and goes on" * 10_000 + " to its end."
    made = replace(profile, kernels=(kernel,) * 50, notes=(note,))
    text = render(made, "terminal", RenderOptions(width=100, top=10_000))
    assert isinstance(text, str)
    assert len(text) < 60_000
    assert "The note begins" in text
    assert " … " in text
    assert "to its end." in text
