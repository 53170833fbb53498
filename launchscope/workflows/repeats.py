"""Measures one target in fresh processes, as often as the gate wants to know."""

from __future__ import annotations

import threading
from collections.abc import Callable

from launchscope.cli.console import Console
from launchscope.cli.profile import load_analysis, profile_of
from launchscope.config import Settings
from launchscope.errors import MeasureError
from launchscope.model import Profile, Target
from launchscope.workflows.recording import record, recording_folder

_STDERR = 2


class Repeats:
    """The Profiles of up to `most` processes, joined into one."""

    def __init__(self, profiles: list[Profile], measure: Callable[[], Profile] | None, most: int):
        self._profiles = profiles
        self._measure = measure
        self._most = most

    @classmethod
    def of_target(cls, target: Target, settings: Settings, most: int, screen: Console) -> Repeats:
        """Measures once now. MeasureError (exit code 3) if the script fails or has no step."""
        loading = threading.Thread(target=load_analysis, daemon=True)
        loading.start()

        def measure() -> Profile:
            return _measured(target, settings, screen, loading)

        return cls([measure()], measure, most)

    @classmethod
    def of_profile(cls, profile: Profile) -> Repeats:
        """A saved one, which cannot be measured again."""
        return cls([profile], None, 1)

    @property
    def profile(self) -> Profile:
        from launchscope.gate import merged

        return merged(self._profiles)

    @property
    def processes(self) -> int:
        return len(self._profiles)

    def more(self) -> bool:
        """One more process; False if there were enough."""
        if self._measure is None or len(self._profiles) >= self._most:
            return False
        self._profiles.append(self._measure())
        return True

    def all(self) -> None:
        """Every process there may be."""
        while self.more():
            pass

    def again(self) -> bool:
        """Begin anew; False if nothing can be measured."""
        if self._measure is None:
            return False
        self._profiles = [self._measure()]
        return True


def _measured(
    target: Target, settings: Settings, screen: Console, loading: threading.Thread
) -> Profile:
    from launchscope.runner.parent.session import RunOptions

    run_options = RunOptions(
        python=settings.python,
        timeout_s=settings.timeout,
        max_runs=settings.max_runs,
        stdout=_STDERR,
    )
    with recording_folder(target, screen, keep=settings.keep_trace) as directory:
        outcome = record(target, settings.schedule, run_options, directory, screen)
        try:
            if outcome.problem is not None:
                raise MeasureError(str(outcome.problem), hint=outcome.problem.hint)
            if outcome.interrupted:
                raise MeasureError("interrupted", exit_code=outcome.exit_code)
            loading.join()
            return profile_of(outcome, settings)
        finally:
            outcome.settle()
