"""What a few eager iterations have shown of the lines around the step, by which they are moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

OBSERVATION = "observation"  # a file
OBSERVED = 3  # iterations
RANDOM = "random numbers of"  # a generator of the host: what a line changes that draws some
# Of a name at the end of an iteration. "graph": a tensor that still needs a backward. "changing":
# not a tensor, and another one in each iteration.
Holding = Literal["tensor", "graph", "fixed", "changing"]


@dataclass(frozen=True)
class Cause:
    """What a replay cannot do, and where the person's code does it: in `file`, which is empty for
    that of the step, on a line with this code. `changed`: what it changes on the host; empty where
    it reads there."""

    why: str
    file: str
    line: int
    code: str
    changed: str = ""
    columns: tuple[int, ...] = ()  # of an expression of the step itself: from, to; in bytes


@dataclass(frozen=True)
class SeenLine:
    """One line, in all observed iterations. What it changed and read is named as code would name
    it; `tensors` are those `written` to, with those that are others now or have other gradients."""

    line: int
    operations: int = 0
    host_reads: int = 0
    values: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()  # that code read which ran
    causes: tuple[Cause, ...] = ()


@dataclass(frozen=True)
class Observation:
    """`schedules`: a scheduler changes the rates of an optimizer, or the script does. `validates`:
    torch.distributions checks values by default, and is used."""

    lines: tuple[SeenLine, ...] = ()
    names: Mapping[str, Holding] = field(default_factory=dict)
    # The names from which each thing can be reached that was seen to change.
    names_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    schedules: bool = False
    validates: bool = False
