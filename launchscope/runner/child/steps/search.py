"""Finds the period of the script's event sequence and follows the steps it makes.

Pure bookkeeping over tokens that knows nothing of torch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import chain
from typing import Literal, NamedTuple

from launchscope.model import StepEvent
from launchscope.runner.child.step_pattern import (
    BACKWARD,
    FORWARD,
    NO_LEAD,
    OPTIMIZER,
    PREVIOUS_END,
    Lead,
    Pattern,
    Token,
)

# A period counts after it was seen this often in a row; long ones (many accumulation steps)
# after two, because waiting for a third costs more than it is worth.
_REPEATS_SHORT, _REPEATS_LONG, _LONG = 3, 2, 16
_LONGEST_PERIOD = 600
_HISTORY = 4000
# An optimizer that has made none of so many steps is gone, or steps too rarely for each step.
_LATEST = 40
# Less than this share of the steps are no kind of step.
_RARE_SHARE = 0.05
# The kinds of steps of a script are reported if they are no more than this, and so much of it.
MOST_KINDS, _KNOWN_SHARE = 4, 0.8


class TrainingKind(NamedTuple):
    """A kind of step: its events, of several equal ones in a row only the first, how many steps of
    it were seen, and the number of the last."""

    events: tuple[tuple[StepEvent, str], ...]
    steps: int
    last: int


def repeating_period(tokens: Sequence[Token], required: frozenset[str] = frozenset()) -> int | None:
    """The smallest period of the end of `tokens` that contains every key in `required`.

    Only the last two or three periods are compared, so that anything rare further back
    (an evaluation, a skipped step) does not matter. None: no such period.
    """
    count = len(tokens)
    for period in range(1, min(_LONGEST_PERIOD, count // 2) + 1):
        repeats = _REPEATS_SHORT if period <= _LONG else _REPEATS_LONG
        if repeats * period > count:
            continue
        if any(
            tokens[-1 - back] != tokens[-1 - back - period]
            for back in range((repeats - 1) * period)
        ):
            continue
        if required <= {token.key for token in tokens[-period:]}:
            return period
    return None


class StepSearch:
    """Collects the tokens of the warm-up and finds the period at which they repeat."""

    def __init__(self) -> None:
        self._training: deque[Token] = deque(maxlen=_HISTORY)
        self._all: deque[Token] = deque(maxlen=_HISTORY)
        self._seen: Counter[tuple[str, str]] = Counter()  # by kind and key, also beyond the history
        self.optimizer_steps = 0
        self._latest: deque[str] = deque(maxlen=_LATEST)  # optimizers that have stepped
        self._before_training: deque[Token] = deque(maxlen=64)
        # What ran without gradients right before each training token, index by index.
        self._lead_ins: deque[tuple[Token, ...]] = deque(maxlen=_HISTORY)
        self._leads: deque[Lead] = deque(maxlen=_HISTORY)  # likewise
        self.saw_backward = False

    def add(self, token: Token, lead: Lead = NO_LEAD) -> None:
        self._all.append(token)
        self._seen[token.kind, token.key] += 1
        if token.kind == FORWARD and not token.trains:
            self._before_training.append(token)
            return
        if token.kind == OPTIMIZER:
            self.optimizer_steps += 1
            self._latest.append(token.key)
        if token.kind == BACKWARD:
            self.saw_backward = True
        leads = tuple(lead for lead in self._before_training if lead.key != token.key)
        self._lead_ins.append(leads)
        self._leads.append(lead)
        self._before_training.clear()
        self._training.append(token)

    def fetch(self) -> None:
        """A batch was fetched: what ran before belongs to no later step."""
        self._before_training.clear()

    @property
    def trains(self) -> bool:
        return self.saw_backward or bool(self.optimizer_steps)

    def training_pattern(self, optimizer_expected: bool) -> Pattern | None:
        """The step of a training script; None while it is not clear.

        With `optimizer_expected` a period without an optimizer step is not a step:
        gradient accumulation looks like that until the first one.
        """
        if not self.trains or (optimizer_expected and not self.optimizer_steps):
            return None
        tokens = list(self._training)
        period = repeating_period(tokens, self.required)
        if period is None:
            return None
        return self._training_from(_first_of(tokens, period), period)

    @property
    def required(self) -> frozenset[str]:
        """The optimizers that are in every step: all that have stepped lately."""
        return frozenset(self._latest)

    def _training_from(self, start: int, period: int) -> Pattern:
        tokens = tuple(self._training)[start : start + period]
        ends = [i + 1 for i, token in enumerate(tokens) if token.kind == OPTIMIZER]
        if ends:
            tokens, tail = tokens[: ends[-1]], tokens[ends[-1] :]
            if any(token.kind == BACKWARD for token in tail) or self._begins(tail, tokens):
                tokens = (*tail, *tokens)
                start += ends[-1]
            # else: metrics after the optimizer step; they belong to the rest of the iteration
        before = tuple(t for t in self._common_lead_in(start, period) if t.weighted)
        closing: Literal["optimizer", "next"] = "optimizer" if ends else "next"
        lead = NO_LEAD if before else self._common_lead(start, period)
        return Pattern((*before, *tokens), closing, lead)

    def _begins(self, tail: tuple[Token, ...], step: tuple[Token, ...]) -> bool:
        """Whether the script began its training with what follows the last optimizer step here.

        Then the stretch that repeats begins in the middle of a longer step: in a step of an
        encoder and of a decoder that is called once per token, at one call of the decoder.
        """
        if not tail or len(self._training) == self._training.maxlen:
            return False
        return self._training[0] == tail[0] and tail[0] not in step

    def _common_lead_in(self, start: int, period: int) -> tuple[Token, ...]:
        """Forwards without gradients before the first training forward, if every step has them.

        The forward of a teacher or a generator belongs to the step. One of the trained
        module itself does not: that is a policy acting, or an evaluation.
        """
        recent = list(self._lead_ins)[start::period][-3:]
        if len(recent) < 2 or len(set(recent)) != 1 or len(recent[0]) > 4:
            return ()
        return recent[0]

    def _common_lead(self, start: int, period: int) -> Lead:
        """What every step has before its first event."""
        recent = list(self._leads)[start::period][-3:] or (NO_LEAD,)
        return Lead(all(lead.zeroed for lead in recent), all(lead.computed for lead in recent))

    def forward_pattern(self) -> Pattern | None:
        """The step of an inference script: a period of outermost forwards."""
        tokens = [token for token in self._all if token.kind == FORWARD]
        period = repeating_period(tokens)
        if period is None:
            return None
        start = _first_of(tokens, period)
        cycle = tokens[start : start + period]
        weighted = [index for index, token in enumerate(cycle) if token.weighted]
        if weighted:
            cycle = cycle[weighted[0] : weighted[-1] + 1]
        return Pattern(tuple(cycle), "forward")

    def single_optimizer_pattern(self) -> Pattern | None:
        """`--step-from optimizer`: everything up to one optimizer step, whatever the period. Of
        several kinds of steps, the most frequent one."""
        tokens = list(self._training)
        ends = [index for index, token in enumerate(tokens) if token.kind == OPTIMIZER]
        if len(ends) < 2:
            return None
        kinds = self.training_kinds()
        number = kinds[0].last if kinds and kinds[0].last else len(ends) - 1
        begin, end = ends[number - 1] + 1, ends[number] + 1
        pattern = self._training_from(begin, end - begin)
        # Modules that were made for this step do not come again.
        before = (*tokens[:begin], *chain(*list(self._lead_ins)[:begin]))
        return pattern.visible_through(frozenset(token.key for token in before))

    def training_kinds(self) -> list[TrainingKind]:
        """The kinds of steps that a training script takes by turns, most frequent first,
        each up to one optimizer step; empty if there is one kind, or if steps hardly come back."""
        steps: list[tuple[tuple[StepEvent, str], ...]] = []
        events: list[tuple[StepEvent, str]] = []
        for token in self._training:
            event = token.kind, token.key
            if events[-1:] != [event]:  # a model may be called as often as its data takes
                events.append(event)
            if token.kind == OPTIMIZER:
                steps.append(tuple(events))
                events = []
        counts = Counter(steps)
        fewest = max(2, _RARE_SHARE * len(steps))
        often = [(events, n) for events, n in counts.most_common() if n >= fewest]
        if not often or sum(n for _, n in often) < _KNOWN_SHARE * len(steps):
            return []
        last = len(steps) - 1 - steps[::-1].index(often[0][0])
        # What came before, as the steps of an optimizer that has been replaced, is no other kind.
        mixed = set(steps[steps.index(often[0][0]) : last])
        kinds = [
            TrainingKind(events, n, len(steps) - 1 - steps[::-1].index(events))
            for events, n in often
            if events in mixed or events == often[0][0]
        ]
        return kinds if 2 <= len(kinds) <= MOST_KINDS else []

    def single_forward_pattern(self) -> Pattern | None:
        """`--step-from forward`: one outermost forward of the module seen most often."""
        forwards = [token for token in self._all if token.kind == FORWARD]
        weighted = [token for token in forwards if token.weighted]
        tokens = tuple(token for token, _ in Counter(weighted or forwards).most_common(1))
        return Pattern(tokens, "forward") if tokens else None

    def steps_seen(self, pattern: Pattern) -> int:
        """How many steps of this pattern were seen."""
        if pattern.closing == "optimizer":
            return self.optimizer_steps // pattern.optimizers
        kind, per_step = BACKWARD, pattern.backwards
        if pattern.closing == "forward":
            kind, per_step = FORWARD, pattern.forwards
        seen = sum(self._seen[kind, key] for key in pattern.keys)
        return seen // max(1, per_step)


def _first_of(tokens: Sequence[Token], period: int) -> int:
    """The index into `tokens` at which the script itself began the period.

    Walks the periodic stretch back to where it starts in the history: a training loop
    enters its period at the period's first event.
    """
    start = len(tokens) - period
    while start > 0 and tokens[start - 1] == tokens[start - 1 + period]:
        start -= 1
    return start


class StepFollower:
    """Follows a known pattern event by event: which ones open and close a step.

    Runs within measured steps, so it makes a few comparisons and nothing else.
    """

    def __init__(self, pattern: Pattern):
        self.pattern = pattern
        self.inside = False
        self.missed = 0  # backwards outside of any step
        self._saw_other_mode = False  # the opening forward, in the other mode
        self._forwards = self._backwards = self._optimizers = 0

    def opens(self, kind: str, key: str, trains: bool = True, training: bool = True) -> bool:
        """True if this event opens a step. Call before the event's work starts."""
        if not self.pattern.opened_by(kind, key, trains, training):
            if kind == FORWARD and self.pattern.opened_by(kind, key, trains, not training):
                self._saw_other_mode = True
            return False
        return not self.inside or self._overdue()

    def opens_after(self, key: str) -> bool:
        """True if a step begins after this optimizer step, which is over."""
        first, last = self.pattern.first, self.pattern.tokens[-1]
        return first.kind == PREVIOUS_END and not self.inside and key == last.key

    def _overdue(self) -> bool:
        """An opening event although the step has already had all of its own."""
        pattern = self.pattern
        if pattern.closing == "optimizer":
            return pattern.backwards > 0 and self._backwards >= pattern.backwards
        if pattern.closing == "next":
            return self._backwards >= pattern.backwards
        return self._forwards >= pattern.forwards

    def begin(self) -> None:
        self.inside = True
        self._forwards = self._backwards = self._optimizers = 0

    def closes(self, kind: str) -> bool:
        """True if this event, which is over, ends the step."""
        pattern = self.pattern
        if not self.inside:
            if kind == BACKWARD and pattern.first.kind == FORWARD and pattern.closing != "forward":
                self.missed += 1
                # The script may go on training in the mode that its evaluation has set.
                if self._saw_other_mode:
                    self._saw_other_mode = False
                    self.pattern = pattern.in_other_mode()
            return False
        if kind == OPTIMIZER:
            self._optimizers += 1
            return pattern.closing == "optimizer" and self._optimizers >= pattern.optimizers
        if kind == FORWARD:
            self._forwards += 1
            return pattern.closing == "forward" and self._forwards >= pattern.forwards
        self._backwards += 1
        return False

    def closes_before(self) -> bool:
        """For steps that end with the next fetch or opening: is this one complete?"""
        pattern = self.pattern
        return self.inside and pattern.closing == "next" and self._backwards >= pattern.backwards

    def before_backward(self) -> bool:
        """True until the first backward of the step is over."""
        return self.inside and self._backwards == 0

    def after_backward(self) -> bool:
        """True once the last backward of the step is over."""
        return self.inside and self._backwards >= self.pattern.backwards

    def end(self) -> None:
        self.inside = False
