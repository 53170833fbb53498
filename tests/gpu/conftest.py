"""Runs a script under the real command line on the GPU and hands back what came of it."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import launchscope
from launchscope.model import Profile, Recommendation, StepBoundary, Verdict
from launchscope.reason_text import reason_text
from launchscope.rules.profile_queries import busy_excess_pct, gain
from tests import processes

# A training loop that most cases vary: {inside} is code within the step, {between} after it.
LOOP = """
import os, sys, time
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 128, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
capturing = torch.cuda.is_current_stream_capturing
for step in range({steps}):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    {inside}
    loss.backward()
    optimizer.step()
    {between}
"""


def loop(
    inside: str = "pass", between: str = "pass", steps: int = 400, optimizer: str = "AdamW"
) -> str:
    """The loop with code put into the step or behind it."""
    return LOOP.format(inside=inside, between=between, steps=steps, optimizer=optimizer)


@dataclass(frozen=True)
class PointResult:
    """A finished `launchscope profile`: `profile` is None if it saved none."""

    code: int
    stdout: str
    stderr: str
    profile: Profile | None

    @property
    def measured(self) -> Profile:
        assert self.profile is not None, self.stderr
        return self.profile

    @property
    def step(self) -> StepBoundary:
        assert self.measured.step is not None
        return self.measured.step

    @property
    def verdict(self) -> Verdict:
        assert self.measured.verdict is not None
        return self.measured.verdict

    @property
    def replay_reason(self) -> str:
        """Why there is no measured replay; empty if there is one."""
        reason = self.measured.replay.reason
        return "" if reason is None else reason_text(reason)

    def metric(self, key: str) -> float:
        value = self.measured.value(key)
        assert value is not None, f"{key} was not measured\n{self.stdout}\n{self.stderr}"
        return value


ProfileScript = Callable[..., PointResult]


@pytest.fixture
def profile_script(tmp_path: Path) -> ProfileScript:
    """`profile_script(source, *options, args=())` writes script.py and profiles it."""

    def run(source: str, *options: str, args: tuple[str, ...] = ()) -> PointResult:
        script = tmp_path / "script.py"
        script.write_text(textwrap.dedent(source), encoding="utf-8")
        saved = tmp_path / "out.json"
        saved.unlink(missing_ok=True)
        words = ("--timeout", "120", "-o", str(saved), *options, str(script), *args)
        done = processes.launchscope(tmp_path, "profile", *words)
        profile = launchscope.load(saved) if saved.exists() else None
        return PointResult(done.returncode, done.stdout, done.stderr, profile)

    return run


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
    words = (*QUICK, *options, "-o", "out.json", "train.py")
    done = processes.launchscope(folder, "profile", *words, timeout=600)
    assert done.returncode == 0, done.stderr
    return launchscope.load(folder / "out.json")


def recommends(profile: Profile, *wanted: Recommendation) -> bool:
    """Fails unless one of these is recommended; False if the timings leave the recommendation open,
    as they may where other processes run."""
    assert profile.verdict is not None
    if profile.verdict.recommendation == "inconclusive":
        found, excess = gain(profile), busy_excess_pct(profile)
        assert excess is not None or (found is not None and found.is_open), profile.verdict
        return False
    assert profile.verdict.recommendation in wanted, profile.verdict
    return True
