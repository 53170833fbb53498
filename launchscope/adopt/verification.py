"""Runs a script and its patched version in turn, and decides whether the patch may be shown."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeVar

from launchscope.adopt.agreement import Agreement, Disagreement
from launchscope.adopt.comparison import (
    Comparison,
    PrintedComparison,
    compare_held_of,
    first_not_finite,
    first_unequal_rank,
)
from launchscope.adopt.diff import runtime
from launchscope.adopt.held import Held
from launchscope.adopt.marks import (
    Iterating,
    iterating_original,
    iterating_patched,
    switches_of,
)
from launchscope.adopt.mirror import Mirror, Project, environment
from launchscope.adopt.observation import (
    COMPARED,
    EVALUATION_FILE,
    FORCED,
    FORCED_IN_INFERENCE,
    MUTANT_FROM,
    MUTANTS,
    Observation,
    Observed,
    StepLines,
    Stretches,
)
from launchscope.adopt.observed_runs import ObservedRun, ObservedRuns, RankTask, RunEnd
from launchscope.adopt.patch import Patch, Place
from launchscope.adopt.printed import Printed
from launchscope.adopt.runs import (
    apart,
    are_steady,
    computes,
    error_of,
    from_the_start,
    has_looked,
    made_graphs,
    why_eager,
    windows_of,
)
from launchscope.errors import MeasureError
from launchscope.model import Forced, Metric, Mutant, MutantCheck, Reason, ReasonCode, Target
from launchscope.reason_text import MUTANTS as MUTANT_TEXTS
from launchscope.runner.protocol.folder import SourceTree
from launchscope.wording import duration

_REPLAYED_PCT = 90.0  # of the calls after the first capture
_FASTER_PCT = 2.0  # a smaller gain is none
_FEWEST_WINDOWS = 6  # of each version
_SWITCH_TRIES = 3  # runs in which the original may fail because of a test that is switched
_MORE_TIMED = 2  # further runs of each version where that is so, or where the patch is not faster
# Times that a difference is looked for again. A tie that rounding decides, as between two maxima,
# shows in none of three runs of eager and in each of three others with a chance below 1 in 64.
_REPEATS = 2
_DIFFERS: dict[str, ReasonCode] = {
    "initial": "initial_state_differs",
    "batch": "batch_differs",
    "input": "input_differs",
    "state": "state_differs",
    "read": "logged_value_differs",
    "reads": "fewer_values_read",
    "steps": "few_common_steps",
}


States: TypeAlias = Literal["", "kept", "restored"]
_Found = TypeVar("_Found", Held, Printed)


class NotVerifiedError(Exception):
    """The patch must not be shown."""

    def __init__(self, code: ReasonCode, **details: str | int | float):
        super().__init__(code)
        self.reason = Reason(code, details)


@dataclass(frozen=True)
class Verification:
    """What the runs have shown. `reason` None: the patch is equal and, on a GPU, faster."""

    reason: Reason | None
    graphs: bool = False  # CUDA graphs were made, and not only eager calls
    agreement: Agreement = field(default_factory=lambda: Agreement(0, False, None))
    eager_exact: bool = False
    before: Metric | None = None
    after: Metric | None = None
    replayed_pct: float | None = None
    setup_ms: float | None = None
    mutants: tuple[MutantCheck, ...] = ()
    forced: tuple[Forced, ...] = ()
    not_forced: tuple[Forced, ...] = ()
    switched: tuple[str, ...] = ()  # tests and loops, by their code, that went the other way, too
    not_switched: tuple[str, ...] = ()
    seeded: bool = False
    # Compared from equal states, or equal to the last bit; otherwise along runs that move apart.
    step_by_step: bool = True
    runs: int = 0
    printed: int | None = 0  # lines that agree; None: there are some, and none could be compared
    held: int = 0  # values that the script holds and that agree


def units_per_call(patch: Patch, places: tuple[Place, ...]) -> int:
    """The optimizer steps in one call of the graphed function; of inference, one."""
    if patch.covered not in ("step", "part"):
        return int(patch.covered == "forward")
    inside = [
        place
        for place in places
        if place.what == "step"
        and any(
            Path(file) == patch.file and patch.first_line <= line <= patch.last_line
            for file, line, _ in place.frames
        )
    ]
    return max(1, len(inside))


class Verifier:
    """Runs of one script, in copies of its project below `base`, whose first `steps` steps are
    compared. `say` gets what a person who waits may want to know."""

    def __init__(
        self,
        runs: ObservedRuns,
        target: Target,
        project: Project,
        base: Path,
        say: Callable[[str], None],
        *,
        vendored: bool = False,
        steps: int = COMPARED,
        environ: Mapping[str, str] = MappingProxyType({}),
    ):
        self._vendored = vendored  # the patch imports a copy of the runtime
        self._stretches = Stretches.of(steps)
        self._runs, self._target, self._project, self._base = runs, target, project, base
        self._say = say
        self._made = 0
        self._perturbed = 0  # of them, to know the noise
        self._took_s = 0.0  # the first run
        self._forced: tuple[Forced, ...] = FORCED
        self._marked: Patch | None = None  # whose marked original is compared
        self._original: Iterating | None = None  # that says where an iteration begins
        self._switches: tuple[str, ...] = ()  # tests of the step that are switched
        self._not_switched: tuple[str, ...] = ()  # they could not be, or the original fails
        self._step: Patch | None = None  # whose lines begin the steps of the original
        self._inside = Path()  # where the project is in the folder of a run
        self._infers = False
        self._sums = False  # the patch adds up on the GPU what the original reads in each step
        # The batch that each rank cuts, as the first run chose it.
        self._short_fetches: tuple[int | None, ...] = (None,) * runs.ranks
        self._states: States = ""  # that the patched versions begin their steps with
        self.states_every = 1  # units from one call of the graphed function to the next
        self._environment = {**environment(base), **environ}
        self._limit_s = runs.timeout_s
        self.end = RunEnd()  # of the last run

    def use(self, runs: ObservedRuns) -> None:
        """The following runs are these."""
        self._runs = runs

    def only_run(self, steps: int) -> None:
        """The following runs are compared with nothing, and end after so many steps."""
        self._stretches = Stretches(steps, timed=False)

    def original(self, *, perturbed: bool = False, states: States = "") -> ObservedRun:
        """The script as it is. Raises NotVerifiedError where it cannot be compared."""
        self._say("running the original")
        run = self.run(None, perturbed=perturbed, states=states)
        cut = run.result is not None and "short_batch" in run.result.forced
        if run.first_to_fail.end.failed and cut and run.units < self._stretches.last:
            # Its sizes may be fixed: that is no failure of the script.
            self._forced = tuple(event for event in self._forced if event != "short_batch")
            run = self.run(None, perturbed=perturbed, states=states)
        self._require(run, "original_failed")
        assert run.result is not None
        steps = run.units or run.result.forwards
        if steps == 0:
            raise NotVerifiedError("no_training")
        if self._stretches.timed and steps < (wanted := self._stretches.compared):
            raise NotVerifiedError("too_few_steps", steps=steps, wanted=wanted)
        if not any(self._short_fetches):
            found = [each.result for each in run.ranks if each.result is not None]
            self._short_fetches = tuple(result.short_fetch for result in found)
        return run

    def verify(self, patch: Patch, units: int, first: ObservedRun) -> Verification:
        """Compare the patched script, whose graphed function has so many units, with the original,
        of which `first` is a run."""
        found = Verification(None)
        self.states_every = max(1, units)
        self._infers = patch.covered == "forward"
        self._sums = any(fix == "item_accumulation" for fix, _ in patch.hunks)
        if self._infers:
            self._forced = tuple(e for e in self._forced if e in FORCED_IN_INFERENCE)
        try:
            if self._infers or not first.units:
                if not patch.marked:
                    wanted = self._stretches.compared
                    raise NotVerifiedError("too_few_steps", steps=0, wanted=wanted)
                self._marked = patch  # nothing else shows where a step begins
            switches = switches_of(patch, marked=self._marked is not None)
            first = self.suitable(patch, first, switches)
            return self._verify(patch, units, first)
        except NotVerifiedError as error:
            return replace(found, reason=error.reason, runs=self._made)

    def run_once(self, patch: Patch, units: int) -> Verification:
        """The patched script runs where no graph can be made; nothing is compared."""
        self._patched(patch, units)
        return Verification(None, runs=self._made)

    def _use_switches(self, patch: Patch, switches: tuple[str, ...]) -> None:
        self._switches = switches
        self._stretches = replace(self._stretches, switches=len(switches))
        marked = self._marked is not None
        self._original = iterating_original(patch, marked=marked, switches=switches)

    def suitable(
        self, patch: Patch, first: ObservedRun, switches: tuple[str, ...] = ()
    ) -> ObservedRun:
        """The run of the original with which others are compared: `first`, if it will do. Tests
        whose other branch it does not survive are not switched."""
        self._not_switched = ()
        self._use_switches(patch, switches)
        if self._marked is None:
            self._align(patch, first)
        if not switches:
            return first if self._marked is None and self._step is None else self.original()
        for _ in range(_SWITCH_TRIES):
            self._say("running the original, with each branch of the step")
            run = self.run(None)
            if run.first_to_fail.end.signal is not None:  # a person has ended it
                self._require(run, "original_failed")
            done = run.units or (run.result.forwards if run.result is not None else 0)
            failed, room = run.first_to_fail.end.failed, self._stretches.room(done)
            unfit = None
            spoilt = first_not_finite(run, self._stretches.switched_from)
            if spoilt is not None:  # nothing behind it could be compared
                unfit = self._stretches.switch_before(spoilt)
            if failed:
                unfit = next((r.result.switching for r in run.ranks if r.result is not None), None)
            elif unfit is None and room >= len(self._switches):
                return run
            if unfit is not None:
                left = self._switches[:unfit] + self._switches[unfit + 1 :]
            elif failed:
                break
            else:
                left = self._switches[:room]  # the script is too short for all
            self._not_switched += tuple(code for code in self._switches if code not in left)
            self._use_switches(patch, left)
            if not left:
                break
        self._not_switched += self._switches
        self._use_switches(patch, ())
        return self.original()

    def _align(self, patch: Patch, first: ObservedRun) -> None:
        """Have the steps of the original all begin in the lines that the patch moves, as those of
        the patched script do, if those of this run do not."""
        assert first.result is not None
        changed = self._inside / os.path.relpath(patch.file, self._project.root)
        # Below the folder of all runs and that of this one.
        places = [
            {
                (Path(*Path(os.path.relpath(file, self._base)).parts[1:]), line)
                for file, line in each
            }
            for each in first.result.begins
        ]
        lines = {(changed, line) for line in range(patch.first_line, patch.last_line + 1)}
        # Beside the step, another branch may make a forward, too.
        if self._switches or not all(place & lines for place in places):
            self._step = patch

    def _verify(self, patch: Patch, units: int, first: ObservedRun) -> Verification:
        compared = self._stretches.compared
        share = self._stretches.mutant_until / self._stretches.last
        left = self._took_s * (4 + len(MUTANTS) * share)
        self._say(
            f"checking the patch takes about {duration(left)}: up to 7 more runs, and up to "
            f"{4 * _REPEATS + 2 * _MORE_TIMED + 4} to tell a difference from chance"
        )
        one = self._patched(patch, units)
        assert one.result is not None
        replayed = self._require_replayed(one)  # at once: no other run could make up for it
        assert first.result is not None
        plain = Comparison.of_runs(first, compared=compared, sums=self._sums)(one)
        # A graph has the `capturable` form of an optimizer: is it no more than its rounding?
        differs = plain.found is not None and plain.found.what in ("state", "read")
        rounds = differs and not self._infers
        if rounds:
            self.states_every = max(self.states_every, apart(one))
        second = self.original(states="kept" if rounds else "")
        if unequal := first_unequal_rank(first, second):
            code: ReasonCode = "unseeded_state" if unequal.what == "initial" else "unseeded_batches"
            raise NotVerifiedError(code)
        eager = [first, second]
        compare = Comparison.of_runs(*eager, compared=compared, sums=self._sums)
        eager_exact = compare.no_noise
        if rounds:
            assert second.result is not None
            self._states = "restored" if second.result.keeps_states else ""
            rounded = self._rounded()
            # With states each step begins with that of the original.
            eager = [second, rounded] if self._states else [first, second, rounded]
            compare = self._comparison(eager)
        if not self._states:
            found, compare = self._equal(patch, units, one, eager, compare)
        if self._marked is not None and not computes(first):
            raise NotVerifiedError("no_output")
        two = self._patched(patch, units)
        again, compare = self._equal(patch, units, two, eager, compare)
        found = again if self._states else replace(again, exact=found.exact and again.exact)
        printed = self._printed(patch, units, two, [second, first], eager, found, eager_exact)
        held = self._held(patch, units, two, second, eager, found)
        assert two.result is not None
        graphs = one.result.graphs
        if replayed is not None:
            replayed = min(replayed, self._require_replayed(two) or 0.0)
        before, after = self._times(patch, units, [first, second], [one, two])
        if graphs:
            self._require_faster(before, after)
        mutants = self._mutants(patch, units, two, compare, bits=found.exact)
        if missed := [mutant.kind for mutant in mutants if mutant.outcome == "missed"]:
            raise NotVerifiedError("mutant_missed", kind=missed[0])
        return Verification(
            None,
            graphs=graphs,
            agreement=found,
            eager_exact=eager_exact,
            before=before,
            after=after,
            replayed_pct=replayed,
            setup_ms=one.result.setup_ms,
            mutants=mutants,
            forced=tuple(e for e in first.result.forced if e in one.result.forced),
            not_forced=tuple(
                e
                for e in (FORCED_IN_INFERENCE if self._infers else FORCED)
                if e not in first.result.forced or e not in one.result.forced
            ),
            switched=tuple(
                self._switches[n] for n in first.result.switched if n in one.result.switched
            ),
            not_switched=self._not_switched
            + tuple(c for n, c in enumerate(self._switches) if n not in one.result.switched),
            seeded=not first.result.seeds_itself,
            step_by_step=found.exact or (bool(self._states) and from_the_start(two)),
            runs=self._made,
            printed=printed,
            held=held,
        )

    def _held(
        self,
        patch: Patch,
        units: int,
        run: ObservedRun,
        original: ObservedRun,
        eager: list[ObservedRun],
        found: Agreement,
    ) -> int:
        """The values that the patched run holds as the `original` does, whose states it may have
        begun its steps with."""
        others = [each for each in eager if each is not original and has_looked(each)]

        def compare(run: ObservedRun, more: list[ObservedRun]) -> Held:
            known = [original, *others, *more]
            return compare_held_of(known, run, inner=patch.inner, exact=found.exact)

        made = self._looked_again(patch, units, run, compare, "another value is held")
        if made.found is not None:
            raise NotVerifiedError(
                "held_value_differs",
                unit=made.found.unit,
                name=made.found.name,
                original=made.found.original,
                patched=made.found.patched,
                **({} if made.rank is None else {"rank": made.rank}),
            )
        return made.values

    def _printed(
        self,
        patch: Patch,
        units: int,
        run: ObservedRun,
        originals: list[ObservedRun],
        eager: list[ObservedRun],
        found: Agreement,
        eager_exact: bool,
    ) -> int | None:
        """The lines in which the patched run agrees with the first of the `originals`, whose states
        it may have begun its steps with; None where there are lines and none can be compared."""
        comparison = PrintedComparison(
            originals[0],
            originals[1:],
            [each for each in eager if all(each is not other for other in originals)],
            exact=found.exact,
            repeatable=eager_exact,
            last=self._stretches.last,
        )
        made = self._looked_again(
            patch,
            units,
            run,
            lambda run, more: replace(comparison, rounded=[*comparison.rounded, *more])(run),
            "another text was printed",
        )
        if made.found is not None:
            raise NotVerifiedError(
                "printed_differs",
                original=made.found.original,
                patched=made.found.patched,
                **({} if made.rank is None else {"rank": made.rank}),
                **({} if made.file is None else {"file": made.file}),
                **({"logged": True} if made.logged else {}),
            )
        return None if made.left_out and not made.lines else made.lines

    def _looked_again(
        self,
        patch: Patch,
        units: int,
        run: ObservedRun,
        compare: Callable[[ObservedRun, list[ObservedRun]], _Found],
        what: str,
    ) -> _Found:
        """What a run is compared to be. A difference is looked for with one more run of each
        version: the first may be chance, and two runs of the original may agree in a time."""
        made = compare(run, [])
        if made.found is None:
            return made
        self._say(f"{what}: looking for it again, as it may be chance")
        more = [self.original(states=self._states)]
        made = compare(run, more)
        return made if made.found is None else compare(self._patched(patch, units), more)

    def _comparison(self, eager: Sequence[ObservedRun]) -> Comparison:
        make = Comparison.of_steps if self._states else Comparison.of_runs
        return make(*eager, compared=self._stretches.compared, sums=self._sums)

    def _equal(
        self,
        patch: Patch,
        units: int,
        run: ObservedRun,
        eager: list[ObservedRun],
        compare: Comparison,
    ) -> tuple[Agreement, Comparison]:
        """How the patched run agrees with the original, and by which noise. A difference is looked
        for in more runs of both: one that is none in any of them was chance. One that is there
        again to the last bit is a fault, or the other side of a tie, which a perturbed original
        may take as well. Adds to `eager`."""
        runs = [run]
        found = compare(run)
        same = False
        for _ in range(_REPEATS):
            if found.found is None or found.found.what not in ("state", "read"):
                break
            self._say("a difference was found: looking for it again, as it may be chance")
            if not same:
                again = self._patched(patch, units)
                repeated = compare(again)
                if repeated.found is None:
                    return repeated, compare
                same = repeated.found == found.found
                runs.append(again)
            if same and self._infers:
                break
            eager.append(self.original(perturbed=not self._infers, states=self._states))
            compare = self._comparison(eager)
            known = [compare(each) for each in runs]
            found = next((each for each in known if each.found is None), known[0])
        _require_equal(found.found)
        return found, compare

    def _rounded(self) -> ObservedRun:
        """The original with updates that are a little larger."""
        try:
            return self.original(perturbed=True, states=self._states)
        except NotVerifiedError as error:
            if not self._states or error.reason.code != "original_failed":
                raise
            # What autograd has kept from one step to the next must not change in between.
            self._states = ""
            return self.original(perturbed=True)

    def _mutants(
        self, patch: Patch, units: int, run: ObservedRun, compare: Comparison, *, bits: bool
    ) -> tuple[MutantCheck, ...]:
        """Each wrong version, up to where it has to show. `bits`: the right one agrees in each."""
        assert run.result is not None
        inputs = [{state.inputs for state in of.states if state.inputs} for of in run.ranks]
        applies: dict[Mutant, bool] = {
            "frozen_rate": "learning_rate" in run.result.forced
            and patch.covered in ("step", "part"),  # an optimizer steps in it
            "stale_batch": any(len(different) > 1 for different in inputs),
            "repeated_random": run.result.draws_random,
        }
        applies["left_out"] = not any(applies.values())
        found = []
        for kind in MUTANTS:
            if not applies[kind] and (
                kind == "left_out" or (kind == "frozen_rate" and self._infers)
            ):
                continue
            if not applies[kind]:
                found.append(MutantCheck(kind, "not_applicable"))
                continue
            self._say(f"making a fault that the comparison has to notice: {MUTANT_TEXTS[kind]}")
            mutant = self._patched(patch, units, kind)
            # Until then it is the right version.
            since = (MUTANT_FROM - 1) * self.states_every
            seen = compare(mutant, 0, bits=bits, since=since).found
            outcome = "noticed" if seen else "missed"
            found.append(MutantCheck(kind, outcome, seen.unit if seen else None))  # type: ignore[arg-type]
        return tuple(found)

    def _patched(self, patch: Patch, units: int, mutant: Mutant | None = None) -> ObservedRun:
        if mutant is None:
            self._say("running the patched version")
        run = self.run(patch, units, mutant, states=self._states)
        self._require(run, "patched_failed")
        return run

    def run(
        self,
        patch: Patch | None,
        units: int | None = None,
        mutant: Mutant | None = None,
        *,
        perturbed: bool = False,
        states: States = "",
    ) -> ObservedRun:
        """One run, of the patched version if there is a patch; it keeps its states, or begins its
        steps with those that another run has kept."""
        self._made += 1
        self._perturbed += perturbed
        place = self._base / str(self._made)
        try:
            mirror = Mirror(self._project, place)
            self._inside = mirror.root.relative_to(place)
            if patch is None and self._original is not None:
                mirror.write(self._original.file, self._original.content)
            if patch is not None:
                mirror.write(patch.file, iterating_patched(patch, self._switches).content)
                for name, content in runtime().items() if self._vendored else ():
                    mirror.write(patch.file.parent / name, content)
        except OSError as error:
            raise MeasureError(
                f"the project cannot be copied for a run: {error.strerror or error}",
                hint="set TMPDIR to a writable folder with room",
            ) from None
        step = None
        if patch is None and self._step is not None:
            lines = [self._step.first_line, self._step.last_line]
            if self._original is not None:
                lines = [self._original.line(number) for number in lines]
            step = StepLines(str(mirror.path_of(self._step.file)), *lines)
        observation = Observation(
            root=str(self._project.root),
            scratch=str(self._base),
            evaluation="",
            stretches=self._stretches,
            units_per_call=units,
            forced=self._forced,
            step=step,
            mutant=mutant,
            perturbed=self._perturbed if perturbed else 0,
            restores=states == "restored",
            states_every=self.states_every,
            outputs=None if self._marked is None else self._marked.outputs,
        )
        task = RankTask(
            target=mirror.target(self._target),
            inside=str(mirror.folder),
            environ=self._environment,
            tree=SourceTree(str(self._project.root), str(mirror.root)),
            observations=tuple(
                replace(
                    observation,
                    evaluation=str(self._base / f"{rank}-{EVALUATION_FILE}"),
                    short_fetch=short,
                    states=str(self._base / f"states-{rank}") if states else "",
                )
                for rank, short in enumerate(self._short_fetches)
            ),
            place=str(place / "run"),
        )
        began = time.monotonic()
        since_ns = time.time_ns()
        run = self._runs.run(task)
        run = replace(run, files=mirror.written(since_ns))
        self._took_s = self._took_s or time.monotonic() - began
        mirror.remove()
        return run

    def _require(self, run: ObservedRun, code: ReasonCode) -> None:
        """NotVerifiedError where a run did not go as it should."""
        failed = run.first_to_fail
        end = failed.end
        self.end = end
        if end.signal is not None:
            raise MeasureError("interrupted", exit_code=128 + end.signal)
        if end.timed_out:
            raise NotVerifiedError("not_verified_within", seconds=self._limit_s or 0.0)
        if end.refused_write is not None:
            raise NotVerifiedError("writes_outside", path=end.refused_write)
        if end.own_failure is not None:
            raise NotVerifiedError("launchscope_failed", **end.own_failure.details)
        if run.result is None or end.failed:
            error = error_of(failed)
            if len(run.ranks) > 1:  # torch says it, too, but not of an error of its own
                named = f"rank {failed.rank}: "
                error = named + error.removeprefix(f"[rank{failed.rank}]: ")
            raise NotVerifiedError(code, error=error)

    def _times(
        self, patch: Patch, units: int, originals: list[ObservedRun], patched: list[ObservedRun]
    ) -> tuple[Metric, Metric]:
        """Milliseconds per step before and after. Adds further runs of both versions in turn where
        those of one version differ, or the patch is not faster: a machine that others use as well
        can be slow for as long as a run."""
        for more in range(_MORE_TIMED + 1):
            before = Metric.of_samples(windows_of(*originals), "ms")
            after = Metric.of_samples(windows_of(*patched), "ms")
            steady = are_steady(originals) and are_steady(patched) and _faster(before, after)
            if more == _MORE_TIMED or steady or not made_graphs(patched):
                break
            self._say("times differ from run to run: measuring both versions once more")
            originals.append(self.original())
            patched.append(self._patched(patch, units))
        return before, after

    def _require_faster(self, before: Metric, after: Metric) -> None:
        fewest = min(len(before.samples), len(after.samples))
        if fewest < _FEWEST_WINDOWS or not before.value or not after.value:
            raise NotVerifiedError("too_few_timed", steps=self._stretches.timed_from)
        if not _faster(before, after):
            raise NotVerifiedError("not_faster", before_ms=before.value, after_ms=after.value)

    def _require_replayed(self, run: ObservedRun) -> float | None:
        """The share of replays in percent, of the rank with the lowest; None where no graph can be
        made."""
        assert run.result is not None
        if not run.result.graphs:
            return None
        shares = [self._replayed_pct(of.result) for of in run.ranks if of.result is not None]
        replayed = min(shares)
        if replayed < _REPLAYED_PCT:
            raise NotVerifiedError("not_replayed", pct=replayed, why=why_eager(run))
        return replayed

    def _replayed_pct(self, result: Observed) -> float:
        """Of the calls after the first capture, without those around the forced events: each of
        these may take a capture of its own."""
        stretches = self._stretches
        calls = replayed = 0
        for before, now in zip(result.calls, result.calls[1:]):
            if before.captured and (
                now.unit <= stretches.compared or before.unit >= stretches.timed_from
            ):
                calls += now.eager + now.captured + now.replayed
                calls -= before.eager + before.captured + before.replayed
                replayed += now.replayed - before.replayed
        return 100.0 * replayed / calls if calls else 0.0


def _require_equal(found: Disagreement | None) -> None:
    if found is not None:
        raise NotVerifiedError(
            _DIFFERS[found.what],
            unit=found.unit,
            name=found.name,
            difference=found.error,
            allowed=found.allowed,
            **({} if found.rank is None else {"rank": found.rank}),
        )


def _faster(before: Metric, after: Metric) -> bool:
    return (after.value or math.inf) <= (before.value or 0.0) * (1 - _FASTER_PCT / 100)
