"""Where the report of a comparison goes: checked before the runs, written after them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launchscope.cli.console import Console
from launchscope.cli.output import UNWRITTEN, check_place, write
from launchscope.model import Comparison
from launchscope.report.comparison import (
    ComparisonReporter,
    render,
    reporter_for_path,
    reporter_named,
)


@dataclass(frozen=True)
class ComparisonOutputs:
    """The formats and places a person asked for."""

    shown: ComparisonReporter
    files: tuple[tuple[Path, ComparisonReporter], ...]

    @classmethod
    def checked(cls, format_name: str, paths: Sequence[Path]) -> ComparisonOutputs:
        """UsageError for an unknown format or suffix, or a place that cannot be written."""
        shown = reporter_named(format_name)
        files = tuple((path, reporter_for_path(path)) for path in paths)
        for path, _ in files:
            check_place(path)
        return cls(shown, files)

    def deliver(
        self, comparison: Comparison, console: Console, next_commands: tuple[str, ...]
    ) -> int:
        """Prints the report and writes the files. Exit code 2 if a file could not be written;
        the comparison is then in a folder for temporary files, which is named."""
        shown = self.shown.render(
            comparison,
            width=console.width,
            color=console.color,
            unicode=console.unicode,
            next_commands=next_commands,
        )
        lost = False
        try:
            console.out(shown)
        finally:
            for path, reporter in self.files:
                try:
                    write(path, reporter.render(comparison))
                except OSError as error:
                    console.error(f"cannot write {path}: {error.strerror or error}")
                    lost = True
                else:
                    console.progress(f"wrote {path}")
        if not lost:
            return 0
        saved = Path(tempfile.mkdtemp(prefix="launchscope-")) / "comparison.json"
        write(saved, render(comparison, "json"))
        console.error(
            f"the comparison was saved as {saved}",
            f"launchscope report {saved} -o PATH writes it again",
        )
        return UNWRITTEN
