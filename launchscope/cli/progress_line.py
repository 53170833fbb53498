"""What happens right now, in the last line of a terminal: rich's progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress


class ProgressLine:
    """One task, with steps and the time left where there are steps to count. It is drawn when
    something changes, never in between: a script may print to the same terminal."""

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._progress: Progress | None = None
        self._label = ""

    def show(self, label: str, done: int = 0, total: int = 0) -> None:
        """Only on a terminal."""
        if not self._stream.isatty():
            return
        if self._progress is None or label != self._label:
            self.clear()
            self._progress, self._label = _started(self._stream), label
            self._progress.add_task(label, total=total or None, steps="")
        steps = f"{done}/{total}" if total else ""
        self._progress.update(self._progress.task_ids[0], completed=done, steps=steps, refresh=True)

    def clear(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def _started(stream: TextIO) -> Progress:
    # Here, because few commands need it.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    progress = Progress(
        TextColumn("launchscope: {task.description} {task.fields[steps]}", markup=False),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(file=stream),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    progress.start()
    return progress
