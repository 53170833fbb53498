"""Where a report goes: checked before the run, written after it, never lost."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launchscope.cli.console import Console
from launchscope.errors import UsageError
from launchscope.model import Profile
from launchscope.report import Reporter, reporter_for_path, reporter_named
from launchscope.report.sheet import Shown, sheet_reporter

UNWRITTEN = 2


@dataclass(frozen=True)
class Outputs:
    """The formats and places a person asked for."""

    shown: Reporter
    files: tuple[tuple[Path, Reporter], ...]

    @classmethod
    def checked(cls, format_name: str, paths: Sequence[Path]) -> Outputs:
        """UsageError for an unknown format or suffix, or a place that cannot be written."""
        shown = reporter_named(format_name)
        files = tuple((path, reporter_for_path(path)) for path in paths)
        for path, _ in files:
            _try(path)
        return cls(shown, files)

    def for_tables(self) -> Outputs:
        """The same for a Difference or Ranks; UsageError for a format that has no tables."""
        files = tuple((path, sheet_reporter(kind)) for path, kind in self.files)
        return Outputs(sheet_reporter(self.shown), files)

    def deliver(
        self, profile: Profile | Shown, console: Console, next_commands: tuple[str, ...]
    ) -> int:
        """Prints the report and writes the files. Exit code 2 if a file could not be written;
        the Profile is then in a folder for temporary files, which is named."""
        options: dict[str, object] = {
            "width": console.width,
            "color": console.color,
            "unicode": console.unicode,
            "top": 10_000 if console.verbose else 8,
            "next_commands": next_commands,
        }
        shown = self.shown.render(profile, **options)
        written: list[bool] = []
        try:
            console.out(shown)
        finally:  # the files are wanted also when nobody reads stdout any more
            written += [self._written(path, kind, profile, console) for path, kind in self.files]
        if all(written):
            return 0
        _rescue(profile, console)
        return UNWRITTEN

    @staticmethod
    def _written(
        path: Path, reporter: Reporter, profile: Profile | Shown, console: Console
    ) -> bool:
        try:
            write(path, reporter.render(profile))
        except OSError as error:
            console.error(f"cannot write {path}: {error.strerror or error}")
            return False
        console.progress(f"wrote {path}")
        return True


def write(path: Path, content: str | bytes) -> None:
    """All of it or nothing: through a neighbouring file that then takes the name."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():  # a pipe or a device
        path.write_bytes(data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _try(path: Path) -> None:
    """Writing nothing to the place shows whether it can be written, whoever we run as."""
    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint="-o names a file, such as profile.json")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory", hint=f"mkdir -p {path.parent}")
    if path.exists() and not path.is_file():
        return
    probe = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}",
            hint="choose another folder with -o",
        ) from error


def _rescue(profile: Profile | Shown, console: Console) -> None:
    folder = Path(tempfile.mkdtemp(prefix="launchscope-"))
    saved = folder / "profile.json"
    saved.write_bytes(_json(profile))
    console.error(
        f"the Profile was saved as {saved}", f"launchscope report {saved} -o PATH writes it again"
    )


def _json(profile: Profile | Shown) -> bytes:
    content = reporter_named("json").render(profile)
    return content.encode() if isinstance(content, str) else content
