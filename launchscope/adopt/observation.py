"""What a run that is compared with another one is asked to do, and what it found.

A unit is one call of an optimizer's or a GradScaler's `step()`, or one step that calls none: it
only infers, or its updates are written by hand. The units of a run: `compared` plain ones, the
forced events, then windows of units that are timed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from launchscope.model import Forced, Mutant

# Of one run: the first stretch (unless a person wants a longer one), the distance of the forced
# events, and the timed windows. Each is a multiple of 6, so that functions of 1, 2, 3 or 6 units
# end where a stretch does.
COMPARED, EVENT_EVERY, WINDOW, WINDOWS = 54, 6, 6, 10
STEPS_FILE, RESULT, EVALUATION_FILE = "steps.jsonl", "observed", "evaluation.pt"
HELD = "held-"  # and the number of a look at what the script holds
LOGGED_FILE = "logged.txt"  # messages of the module `logging`
# Functions that a marked script calls where a step begins, and with what it computes.
BEGIN, OUTPUT = "__launchscope_begin__", "__launchscope_output__"
# The same of the loop, or of the function, around the step. What the script holds is noted there.
ITERATION = "__launchscope_iteration__"
# The tests and loops of an iteration that were reached while they went the other way.
SWITCHED = "__launchscope_switched__"
PATCHED_RESULT = "patched"  # of a run that a person asked for

FORCED: tuple[Forced, ...] = ("learning_rate", "evaluation", "state_dict", "short_batch")
FORCED_IN_INFERENCE: tuple[Forced, ...] = ("state_dict", "short_batch")
# How far the same update, computed in other ways, may be from itself: Adam's `capturable` form
# rounds 1 - beta2**step to float32, which loses about so much in the first steps.
PERTURBATION = 3e-5
# What a sketch has in the place of an infinite value and of NaN, which JSON cannot hold.
NOT_FINITE = 1e300
# The call of the graphed function from which on a mutant goes wrong.
MUTANT_FROM = 6
MUTANTS: tuple[Mutant, ...] = ("frozen_rate", "stale_batch", "repeated_random", "left_out")


def switch(number: int) -> str:
    """The variable of the script's module that says whether a test goes the other way."""
    return f"__launchscope_switch_{number}__"


@dataclass(frozen=True)
class Stretches:
    """After how many units each stretch of a run ends. `switches`: the tests of the step that are
    switched, one after the other, behind the other forced events."""

    compared: int = COMPARED
    switches: int = 0
    timed: bool = True  # False: the first stretch is all

    @classmethod
    def of(cls, steps: int) -> Stretches:
        """With so many compared units, or a few more."""
        return cls(-(-steps // EVENT_EVERY) * EVENT_EVERY)

    @property
    def switched_from(self) -> int:
        return self.compared + EVENT_EVERY * (len(FORCED) + 1)

    @property
    def timed_from(self) -> int:
        return self.switched_from + EVENT_EVERY * self.switches

    def switch_before(self, unit: int) -> int:
        """The number of the test that was switched in the step that ended with this unit."""
        return min((unit - 1 - self.switched_from) // EVENT_EVERY, self.switches - 1)

    def room(self, units: int) -> int:
        """How many tests can be switched in a run of so many units, if its times are to be of use;
        all of them if it was stopped at its last one."""
        if units >= self.last:
            return self.switches
        return max(0, (units - WINDOW * WINDOWS - self.switched_from) // EVENT_EVERY)

    @property
    def last(self) -> int:
        return self.timed_from + WINDOW * WINDOWS if self.timed else self.compared

    @property
    def looks_after(self) -> tuple[int, int]:
        """Units after which the next iteration begins with a look at what the script holds."""
        return self.compared, self.timed_from

    @property
    def mutant_until(self) -> int:
        """A wrong rate shows after the first event; what follows would only take time."""
        return self.compared + 2 * EVENT_EVERY


@dataclass(frozen=True)
class StepLines:
    """Where the step is in the original: lines of a file of the project, from 1, inclusive."""

    file: str  # in the copy of this run
    first: int
    last: int


@dataclass(frozen=True)
class Observation:
    """`root`: the person's folder, below which nothing may be written, and `scratch` the one that
    may be. `units_per_call` of the graphed function; None in the original, 0 where its optimizer
    stays outside. `evaluation` is the file with the inputs of a forced evaluation: the first run
    makes it. `short_fetch`: the number of the batch that is cut; None: find one. `step`: only what
    runs there begins a step of the original; None: any forward that can be one of training does."""

    root: str
    scratch: str
    evaluation: str
    stretches: Stretches = Stretches()
    units_per_call: int | None = None
    forced: tuple[Forced, ...] = FORCED
    short_fetch: int | None = None
    step: StepLines | None = None
    mutant: Mutant | None = None
    # Of runs of the original that tell the noise: which of them this is, from 1. Its updates are a
    # little larger, or smaller, and states that it restores are off by rounding, each in its way.
    perturbed: int = 0
    states: str = ""  # the folder of states that the original keeps
    restores: bool = False  # each step that has one begins with it
    # Units between two states: no call of the graphed function and no backward spans one.
    states_every: int = 1
    outputs: tuple[str, ...] | None = None  # of a marked step: names of its values


@dataclass(frozen=True)
class StepState:
    """The state in which a training step begins, after so many units. By tensor: a digest of its
    bytes and a sketch, whose differences have about the norm of the tensors' difference; an
    inference step leaves its outputs, too. `reads`:
    values that the host read since the last one; digests of the tensors that a model or the graphed
    function got (`inputs`), and of the batches that data loaders gave (`fetched`). `updates`: of
    parameters whose optimizer divides by the size of gradients, sketches of how far each moved
    since the state after `since` units, times what it was divided by."""

    unit: int
    digests: dict[str, int]
    sketches: dict[str, tuple[float, ...]]
    reads: tuple[float, ...] = ()
    inputs: tuple[int, ...] = ()
    fetched: tuple[int, ...] = ()
    updates: dict[str, tuple[float, ...]] = field(default_factory=dict)
    since: int = 0


@dataclass(frozen=True)
class HeldValue:
    """A value that a script holds. `text` is what has to be equal: its kind, and what it says. A
    number has a `number`, a tensor or an array a digest of its bytes and a sketch, as in
    StepState."""

    text: str
    number: float | None = None
    digest: int = 0
    sketch: tuple[float, ...] = ()


@dataclass(frozen=True)
class HeldValues:
    """What a script holds where an iteration begins, after so many units, by how its code would
    name it. `whole`: nothing was left out because there is too much."""

    unit: int
    values: dict[str, HeldValue]
    whole: bool = True


@dataclass(frozen=True)
class GraphedCalls:
    """What became of the calls of the graphed function until then."""

    unit: int
    eager: int
    captured: int
    replayed: int


@dataclass(frozen=True)
class Observed:
    """The whole run. `window_ms`: the time of each window, per unit."""

    units: int
    forwards: int = 0  # in a run without an optimizer
    # Whence steps of the original began: lines of the person's files, innermost first.
    begins: tuple[tuple[tuple[str, int], ...], ...] = ()
    window_ms: tuple[float, ...] = ()
    forced: tuple[Forced, ...] = ()  # that happened
    switched: tuple[int, ...] = ()  # tests whose other branch ran, by their numbers
    switching: int | None = None  # the one that was switched when the run ended
    short_fetch: int | None = None
    keeps_states: bool = False
    restored: tuple[int, ...] = ()  # the units after which the state became a kept one
    seeds_itself: bool = False
    setup_ms: float | None = None  # the call that made the first graph, on the host
    draws_random: bool = False  # a graphed call advances a generator of its device
    # Of an SGD with momentum, some parameters have a buffer of it, and others never had a gradient.
    partial_momentum: bool = False
    graphs: bool = False  # CUDA graphs can be made in this process
    calls: tuple[GraphedCalls, ...] = ()
    reasons: tuple[tuple[str, str, str, int], ...] = ()  # eager calls: code, text, line, calls
    epsilons: dict[str, float] = field(default_factory=dict)  # of each tensor's dtype


@dataclass(frozen=True)
class PatchedCalls:
    """What became of the graphed calls of a whole run, and the time from one to the next."""

    eager: int
    captured: int
    replayed: int
    call_ms: float | None = None
