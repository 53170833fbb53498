"""What a person does with a result at a Python prompt or in a notebook: print it, save it.

Reports are made in later layers than this one. `launchscope.api` connects them.
"""

from __future__ import annotations

import os
from typing import ClassVar, Protocol

from launchscope.errors import LaunchscopeError


class Presenter(Protocol):
    """Makes reports of values of the model."""

    def summary(self, value: object) -> str: ...

    def save(self, value: object, path: str | os.PathLike[str]) -> None: ...

    def frame(self, value: object) -> str: ...


class Shown:
    """A result that prints as a short summary and saves itself as a report. `repr` has its fields,
    and so has what is printed where nobody imported `launchscope.api`."""

    _presenter: ClassVar[Presenter | None] = None

    @staticmethod
    def connect(presenter: Presenter) -> None:
        """From now on, this makes the reports of every result."""
        Shown._presenter = presenter

    def _reported(self) -> object:
        """The value of the model that the reports are of."""
        return self

    def __str__(self) -> str:
        return self._presenter.summary(self._reported()) if self._presenter else repr(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report to a file, as `-o` does: the suffix picks the format. `.json` is what
        `load` and `launchscope report` read. Raises UsageError for an unknown suffix, for a format
        that cannot show this result, and for a file that cannot be written."""
        if self._presenter is None:
            raise RuntimeError("import launchscope.api first, which makes the reports")
        self._presenter.save(self._reported(), path)

    def _repr_html_(self) -> str | None:
        return self._presenter.frame(self._reported()) if self._presenter else None


class ShownResult(Shown):
    """A result that may have a `problem` beside its value."""

    problem: LaunchscopeError | None

    def __str__(self) -> str:
        shown = super().__str__()
        return shown if self.problem is None else f"{shown}\nProblem: {self.problem}"
