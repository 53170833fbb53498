"""Compares a run with a run of the original, each rank with itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from launchscope.adopt.agreement import (
    Agreement,
    Disagreement,
    Noise,
    agreement,
    first_inequality,
    noise_of,
)
from launchscope.adopt.held import Held, compare_held
from launchscope.adopt.observation import NOT_FINITE
from launchscope.adopt.observed_runs import ObservedRun, RankRun
from launchscope.adopt.printed import Printed, compare_printed


@dataclass(frozen=True)
class Comparison:
    """With a run of the original, by what eager runs of it differ: `noise` of each rank.
    `by_steps`: the others begin their steps with its states, and a difference is one of a few
    steps. `sums`: the host reads sums of what it reads in the original."""

    reference: ObservedRun
    noise: tuple[Noise, ...]
    by_steps: bool = False
    sums: bool = False

    @classmethod
    def of_runs(
        cls, reference: ObservedRun, *others: ObservedRun, compared: int, sums: bool = False
    ) -> Comparison:
        """Others that began as the reference did; without any, nothing but rounding differs."""
        found = [
            noise_of(first.states, *(run.states for run in rest), compared=compared)
            for first, *rest in _by_rank(reference, *others)
        ]
        return cls(reference, tuple(found), sums=sums)

    @classmethod
    def of_steps(
        cls, reference: ObservedRun, *others: ObservedRun, compared: int, sums: bool = False
    ) -> Comparison:
        found = [
            noise_of(
                first.states,
                *(run.states for run in rest),
                restored=_restored(rest[0]),
                compared=compared,
            )
            for first, *rest in _by_rank(reference, *others)
        ]
        return cls(reference, tuple(found), by_steps=True, sums=sums)

    @property
    def no_noise(self) -> bool:
        return all(noise.none for noise in self.noise)

    def __call__(
        self,
        run: ObservedRun,
        expected: int | None = None,
        *,
        bits: bool = False,
        since: int = 0,
    ) -> Agreement:
        """What all ranks agree in; the first difference is that of any rank, after so many units
        (`since`)."""
        found = []
        for (first, other), noise in zip(_by_rank(self.reference, run), self.noise):
            assert first.result is not None
            made = agreement(
                first.states,
                other.states,
                noise,
                first.result.epsilons,
                expected,
                restored=_restored(other) if self.by_steps else (),
                bits=bits,
                since=since,
                sums=self.sums,
            )
            found.append(replace(made, found=_named(made.found, other, run)))
        reads = [each.reads for each in found]
        return Agreement(
            min(each.units for each in found),
            all(each.exact for each in found),
            None if None in reads else sum(number or 0 for number in reads),
            _first([each.found for each in found]),
        )


@dataclass(frozen=True)
class PrintedComparison:
    """With what a run of the original printed; `twins` are other runs of it, and `rounded` those
    whose updates are a little larger. `last`: the unit after which runs are stopped."""

    reference: ObservedRun
    twins: Sequence[ObservedRun]
    rounded: Sequence[ObservedRun]
    exact: bool
    repeatable: bool
    last: int

    def __call__(self, run: ObservedRun) -> Printed:
        """The lines of all ranks; the difference is that of the first rank that has one, or of a
        file."""
        found = []
        stopped = False
        for other, *originals in _by_rank(run, self.reference, *self.twins, *self.rounded):
            ended = all(not each.was_stopped(self.last) for each in (other, originals[0]))
            stopped = stopped or not ended
            rank = other.rank if len(run.ranks) > 1 else None
            made = self._texts([each.printed for each in originals], other.printed, not ended)
            if made.found is not None:
                return replace(made, rank=rank)
            found.append(made)
            made = self._texts([each.logged for each in originals], other.logged, not ended)
            if made.found is not None:
                return replace(made, rank=rank, logged=True)
            found.append(made)
        files = [each.files for each in (self.reference, *self.twins, *self.rounded)]
        for name in files[0]:
            is_source = name.endswith(".py")  # a copy of the script, which the patch changes
            if all(name in each for each in files) and not is_source:
                texts = [each[name] for each in files]
                made = self._texts(texts, run.files.get(name, ""), stopped)
                if made.found is not None:
                    return replace(made, file=name)
        return Printed(sum(each.lines for each in found), sum(each.left_out for each in found))

    def _texts(self, originals: Sequence[str], patched: str, stopped: bool) -> Printed:
        alike = 1 + len(self.twins)
        return compare_printed(
            originals[:alike],
            patched,
            rounded=originals[alike:],
            exact=self.exact,
            repeatable=self.repeatable,
            stopped=stopped,
        )


def compare_held_of(
    originals: Sequence[ObservedRun], run: ObservedRun, *, inner: Collection[str], exact: bool
) -> Held:
    """What all ranks hold alike; the difference is that of the first rank that has one."""
    values = 0
    for other, *known in _by_rank(run, *originals):
        made = compare_held([each.held for each in known], other.held, inner=inner, exact=exact)
        if made.found is not None:
            return replace(made, rank=other.rank if len(run.ranks) > 1 else None)
        values += made.values
    return Held(values)


def first_not_finite(run: ObservedRun, since: int) -> int | None:
    """The first unit after these behind which a tensor of any rank is infinite or NaN that was not
    so before."""
    found = []
    for rank in run.ranks:
        before: set[str] = set()
        for state in rank.states:
            lost = {n for n, s in state.sketches.items() if any(abs(v) >= NOT_FINITE for v in s)}
            if state.unit <= since:
                before |= lost
            elif lost - before:
                found.append(state.unit)
                break
    return min(found, default=None)


def first_unequal_rank(one: ObservedRun, other: ObservedRun) -> Disagreement | None:
    """Whether two runs of one script begin alike and get the same batches, on all ranks."""
    return _first([first_inequality(a.states, b.states) for a, b in _by_rank(one, other)])


def _first(found: Sequence[Disagreement | None]) -> Disagreement | None:
    known = [difference for difference in found if difference is not None]
    return min(known, key=lambda difference: difference.unit, default=None)


def _named(found: Disagreement | None, of: RankRun, run: ObservedRun) -> Disagreement | None:
    """With its rank, where there are several."""
    return found if found is None or len(run.ranks) == 1 else replace(found, rank=of.rank)


def _by_rank(*runs: ObservedRun) -> Iterator[tuple[RankRun, ...]]:
    return zip(*(run.ranks for run in runs))


def _restored(run: RankRun) -> tuple[int, ...]:
    assert run.result is not None
    return run.result.restored
