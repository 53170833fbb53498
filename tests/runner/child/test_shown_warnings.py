"""Python does not forget what a script has been warned of, although filters change."""

from __future__ import annotations

import contextlib
import warnings
from contextlib import AbstractContextManager

import pytest

from launchscope.runner.child.shown_warnings import still_shown


@pytest.mark.parametrize(
    ("around", "times"), [(still_shown(), 1), (contextlib.nullcontext(), 2)], ids=["kept", "lost"]
)
def test_a_warning_is_shown_once_although_an_import_changes_the_filters(
    around: AbstractContextManager[None], times: int
) -> None:
    """Without the manager Python shows it twice: the test would notice if nothing changed."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for step in range(3):
            warnings.warn(f"in the loop, {times}", stacklevel=1)
            if step == 1:
                with around:
                    warnings.filterwarnings("ignore", "something else")
    assert len(shown) == times
