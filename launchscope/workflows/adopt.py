"""Finds the step of a script, changes it into a graphed function, and shows the change after it was
run and compared."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from launchscope.adopt.diff import diff_lines
from launchscope.adopt.mirror import Mirror, Project, environment
from launchscope.adopt.patch import Patch, RefusedError
from launchscope.adopt.recorded_runs import RecordedRuns, own_input
from launchscope.adopt.rewrite import Step, rewrite, step_of
from launchscope.adopt.verification import (
    NotVerifiedError,
    Verification,
    Verifier,
    planned_runs,
)
from launchscope.config import Settings
from launchscope.errors import MeasureError, ScriptError
from launchscope.host import working_directory
from launchscope.model import (
    Adoption,
    Environment,
    Profile,
    Reason,
    SourceLine,
    Target,
)
from launchscope.reason_text import reason_text
from launchscope.recorded import recorded
from launchscope.runner.parent.child_report import failure_hint
from launchscope.runner.protocol.folder import SourceTree
from launchscope.workflows.profile import ScriptRunner
from launchscope.workflows.progress import Progress
from launchscope.workflows.target import relative

# Verdicts after which no graph is worth the change.
_AGAINST = ("stay_eager", "already_graphed")
_NO_INPUT = "several runs cannot share its standard input: give it as a file, as in `< answers.txt`"
_DIFFERENT = ("value_differs", "printed_differs", "patched_failed")


def exit_code(result: Adoption) -> int:
    """1 where a patch was worth making and there is none."""
    return int(result.outcome in ("refused", "failed"))


def next_commands(result: Adoption, *, saved: bool) -> tuple[str, ...]:
    """What to type next, where there is a patch. `saved`: it is in a file."""
    if not result.diff or saved:
        return ()
    return ("launchscope report -o graph.patch", "git apply graph.patch")


def adopt(target: Target, settings: Settings, progress: Progress) -> Adoption:
    """The change of a script's step, run and compared; nothing of the person's is written. Raises
    the problem of a script that cannot be measured."""
    with TemporaryDirectory(prefix="launchscope-", ignore_cleanup_errors=True) as folder:
        return _Adopting(target, settings, progress, folder).run()


class _Adopting:
    """One command, with its temporary folder."""

    def __init__(
        self,
        target: Target,
        settings: Settings,
        progress: Progress,
        folder: str,
    ):
        self._target, self._settings, self._progress = target, settings, progress
        self._folder = Path(os.path.realpath(folder))
        self._project = Project.of(target, Path(os.path.realpath(working_directory())))
        limit = settings.timeout
        self._deadline = None if limit is None else time.monotonic() + limit
        self._result = Adoption(recorded(relative(target)), Environment(), "failed")

    def run(self) -> Adoption:
        times = f"about {planned_runs()} times, and once more to measure its step"
        where = f"each in a copy of {self._project.root}"
        self._progress.message(f"runs {self._target.name} {times}, {where}")
        try:
            with self._runs() as runs:
                verifier = Verifier(
                    runs,
                    self._target,
                    self._project,
                    self._folder,
                    self._progress.message,
                )
                self._first(verifier)
            step = self._step()
            with self._runs() as verifier.runs:
                return step if isinstance(step, Adoption) else self._adopt(step, verifier)
        except NotVerifiedError as error:
            return replace(self._result, reason=error.reason)
        except RefusedError as refused:
            return self._refused(refused)

    def _adopt(self, step: Step, verifier: Verifier) -> Adoption:
        """A rewrite that is not equal is tried again with what only binds names in the step."""
        seen = verifier.observe(step.source.file, step.marked.content, trains=step.trains)
        result = self._verified(rewrite(step, seen), verifier)
        if result.reason is None or result.reason.code not in _DIFFERENT:
            return result
        try:
            other = rewrite(step, seen, moves=False)
        except RefusedError:
            return result
        return self._verified(other, verifier)

    def _verified(self, patch: Patch, verifier: Verifier) -> Adoption:
        # The copy has a file in place of a link; what changes is the file that it leads to.
        final = dataclasses.replace(patch, file=Path(os.path.realpath(patch.file)))
        if final.file.read_bytes() != final.before:
            raise RefusedError("changed")
        return self._conclude(final, verifier.verify(patch))

    def _runs(self) -> RecordedRuns:
        return RecordedRuns(self._progress.on_event, self._left(), self._settings.python)

    def _left(self) -> float | None:
        """Seconds of --timeout; NotVerifiedError if there are none."""
        if self._deadline is None:
            return None
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise NotVerifiedError("not_verified_within", seconds=self._settings.timeout or 0.0)
        return left

    def _first(self, verifier: Verifier) -> None:
        """The script as it is, before anything else: it may not write where the others would."""
        try:
            verifier.first()
        except NotVerifiedError as error:
            text = reason_text(error.reason)
            if error.reason.code == "original_failed":
                raised, code = verifier.raised, verifier.exit_code or MeasureError.exit_code
                reads = raised is not None and raised.error == EOFError.__name__
                hint = _NO_INPUT if reads else failure_hint(raised)
                raise ScriptError(text, exit_code=code, hint=hint) from None
            raise

    def _step(self) -> Step | Adoption:
        """Where the step is, or the result where it cannot be changed."""
        mirror = Mirror(self._project, self._folder / "0")
        self._progress.message("measuring the step")
        with (
            open(os.devnull, "wb") as nowhere,
            ScriptRunner(self._settings, self._progress, stdout=nowhere.fileno()) as runner,
        ):
            run = runner.run(
                mirror.target(self._target),
                folder=str(mirror.folder),
                stdin=own_input(),
                environ=environment(self._folder),
                tree=SourceTree(str(self._project.root), str(mirror.root)),
                timeout_s=self._left(),
            )
            if run.profile is None or run.recording is None:
                assert run.problem is not None
                raise run.problem
            self._take(run.profile)
            if self._result.recommendation in _AGAINST:
                return replace(self._result, outcome="not_needed")
            return step_of(run.recording, mirror)

    def _refused(self, refusal: RefusedError) -> Adoption:
        where = None
        if refusal.file is not None:
            file = os.path.relpath(self._project.folder / refusal.file, self._project.folder)
            where = SourceLine(file, refusal.line or 1)
        details = {"name": refusal.name, "why": refusal.why}
        known = {name: text for name, text in details.items() if text is not None}
        reason = Reason(refusal.reason, known)
        return replace(self._result, outcome="refused", reason=reason, where=where)

    def _take(self, profile: Profile) -> None:
        verdict = profile.verdict
        self._result = replace(
            self._result,
            environment=profile.environment,
            recommendation=None if verdict is None else verdict.recommendation,
            projected=None if verdict is None else verdict.iteration_speedup,
        )

    def _conclude(self, patch: Patch, checked: Verification) -> Adoption:
        found = replace(
            self._result,
            file=os.path.relpath(patch.file, self._project.folder),
            function=patch.function,
            covered=patch.covered,
            lines=(patch.first_line, patch.last_line),
            runs=checked.runs,
            reason=checked.reason,
        )
        if checked.reason is not None:
            return found
        return replace(
            found,
            outcome="verified" if checked.graphs else "unverified",
            diff=diff_lines(patch, self._project.root),
            fixes=tuple(dict.fromkeys(fix for fix, _ in patch.hunks)),
            steps=checked.comparison.iterations,
            values=checked.comparison.values,
            reads=checked.comparison.reads,
            printed=checked.printed,
            exact=checked.comparison.exact,
            unreached=tuple(SourceLine(found.file, line) for line in checked.unreached),
            before=checked.before,
            after=checked.after,
            replayed_pct=checked.replayed_pct,
            seeded=checked.seeded,
        )
