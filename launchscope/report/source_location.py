"""Lines as formats for code review name them: relative to the repository."""

from __future__ import annotations

import os
from dataclasses import replace

from launchscope.model import SourceLine


def in_repository(where: SourceLine | None, folder: str) -> SourceLine | None:
    """None where there is no line. `folder` is where the script ran, below the repository."""
    if where is None or not where.file or where.line < 1:
        return None
    if not folder:
        return where
    return replace(where, file=os.path.normpath(os.path.join(folder, where.file)))
