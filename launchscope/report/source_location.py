"""Where formats for code review look for a line."""

from __future__ import annotations

import os
from dataclasses import replace

from launchscope.model import SourceLine


def place_of(where: SourceLine | None, folder: object = "") -> SourceLine | None:
    """The line with its file relative to the repository; None where a format cannot show it.

    `folder` is the directory in which the script ran, relative to the repository.
    """
    if where is None or not where.file or where.line < 1:
        return None
    if not folder:
        return where
    return replace(where, file=os.path.normpath(os.path.join(str(folder), where.file)))
