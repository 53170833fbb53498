"""What an output format of a comparison is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from launchscope.model import Comparison


class Render(Protocol):
    """Renders a whole Comparison. Options a format has no use for are ignored by it."""

    def __call__(self, comparison: Comparison, /, **options: object) -> str | bytes: ...


@dataclass(frozen=True)
class ComparisonReporter:
    """One format. `suffixes` are in lower case with their dot; empty for stdout only."""

    name: str
    suffixes: tuple[str, ...]
    render: Render
