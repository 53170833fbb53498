"""Damaged files of every kind: a report or a refusal with a reason, never a crash."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzzing import bases, holds, mutated

pytestmark = pytest.mark.slow

KINDS = (
    "kineto", "json.dumps", "compact", "indented", "tabs", "events first", "gzip", "nsys",
    "nsys with a log", "nsys with a view",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_that_are_mutated_are_sound(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(bases()[kind])
    holds(path)


@pytest.mark.parametrize("kind", KINDS)
@settings(
    max_examples=25, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_gives_a_report_or_a_reason(tmp_path: Path, kind: str, seed: int) -> None:
    path = tmp_path / "trace"
    path.write_bytes(mutated(bases()[kind], random.Random(seed)))
    holds(path)


@pytest.mark.parametrize("kind", ["kineto", "compact", "gzip"])
@settings(
    max_examples=15, deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(kept=st.floats(0, 1))
def test_a_file_may_end_anywhere(tmp_path: Path, kind: str, kept: float) -> None:
    path = tmp_path / "trace"
    content = bases()[kind]
    path.write_bytes(content[: int(len(content) * kept)])
    holds(path)
