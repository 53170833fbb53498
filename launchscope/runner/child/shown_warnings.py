"""Keeps from Python that launchscope changes filters of warnings.

The functions of `warnings` that change filters, which libraries call as they are imported, make
Python forget which warnings it has shown: those of the script would appear once more.
"""

from __future__ import annotations

import _warnings
import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TypeAlias, cast

_Filter: TypeAlias = tuple[str, re.Pattern[str], type[Warning], None, int]
_VERSION = "version"  # in a registry of shown warnings: of the filters that they passed


def filter_first(action: str, text: str) -> Callable[[], None]:
    """Put a filter for warnings with `text` before all others; the result removes it."""
    entry: _Filter = (action, re.compile(f"(?s).*{text}"), Warning, None, 0)
    filters = cast("list[_Filter]", warnings.filters)
    filters.insert(0, entry)

    def remove() -> None:
        # A catch_warnings() of the script may have replaced the list by a copy.
        for held in (filters, cast("list[_Filter]", warnings.filters)):
            while entry in held:
                held.remove(entry)

    return remove


@contextlib.contextmanager
def still_shown() -> Iterator[None]:
    """What modules have shown counts as shown, also if filters change inside."""
    before = _filters_version()
    try:
        yield
    finally:
        after = _filters_version()
        for module in list(sys.modules.values()) if after != before else ():
            shown = getattr(module, "__warningregistry__", None)
            if type(shown) is dict and shown.get(_VERSION) == before:
                shown[_VERSION] = after


def _filters_version() -> object:
    """Python tells it only in a registry that it has looked into."""
    registry: dict[str | tuple[str, type[Warning], int], int] = {}
    unmute = filter_first("ignore", "")
    try:
        _warnings.warn_explicit("", UserWarning, "", 0, "", registry)
    finally:
        unmute()
    return registry.get(_VERSION)
