"""Profiles of scripts, run as a person runs them; each script once for all the tests of it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launchscope.model import Profile
from launchscope.parser import read_profile

# Enough for a verdict on steps of this size; the bursts stay five of each.
QUICK = ("--timing", "12", "--trace", "3", "--replay", "10")

Profiled = Callable[..., Profile]


@pytest.fixture(scope="session")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    """`profiled(source, *options)`: the Profile of a script with this text."""
    known: dict[str, Profile] = {}

    def profile_of(source: str, *options: str) -> Profile:
        key = hashlib.sha1(repr((source, options)).encode()).hexdigest()
        if key not in known:
            folder = tmp_path_factory.mktemp("script")
            (folder / "train.py").write_text(source)
            known[key] = _run(folder, options)
        return known[key]

    return profile_of


def _run(folder: Path, options: tuple[str, ...]) -> Profile:
    command = [sys.executable, "-m", "launchscope", "profile", *QUICK, *options]
    done = subprocess.run(
        [*command, "-q", "-o", "out.json", "train.py"],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_profile(folder / "out.json")
