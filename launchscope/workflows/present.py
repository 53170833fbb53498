"""Reports of results in Python: as a file, and as a page inside a notebook."""

from __future__ import annotations

import html
import os
from pathlib import Path

from launchscope.errors import UsageError
from launchscope.report import render, reporter_for_path
from launchscope.workflows.save import require_writable, write_report


def save(value: object, path: str | os.PathLike[str]) -> None:
    """Write a report; the suffix picks its format. UsageError as for `-o`."""
    file = Path(path)
    require_writable(file)
    content = reporter_for_path(file).content(value)
    try:
        write_report(file, content)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}") from None


def frame(value: object) -> str:
    """The HTML report in a frame that can reach neither the notebook around it nor a network."""
    page = render(value, "html")
    assert isinstance(page, str)
    return (
        '<iframe title="launchscope report" sandbox="allow-scripts" '
        'style="width: 100%; height: 45em; border: 0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )
