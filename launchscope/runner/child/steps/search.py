"""Finds the period of the script's event sequence and follows the steps it makes.

Pure bookkeeping over tokens that knows nothing of torch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from launchscope.runner.child.events.step_pattern import (
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
_LONGEST_LEAD_IN = 4


class TrainingEvent(NamedTuple):
    """A token of training, with what ran without gradients right before it."""

    token: Token
    lead_in: tuple[Token, ...]
    lead: Lead


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


def _first_of(tokens: Sequence[Token], period: int) -> int:
    """The index into `tokens` at which the script itself began the period: a training loop enters
    it at its first event."""
    start = len(tokens) - period
    while start > 0 and tokens[start - 1] == tokens[start - 1 + period]:
        start -= 1
    return start


class StepSearch:
    """Collects the tokens of the warm-up and finds the period at which they repeat."""

    def __init__(self) -> None:
        self._training: deque[TrainingEvent] = deque(maxlen=_HISTORY)
        self._forwards: deque[Token] = deque(maxlen=_HISTORY)
        self._lead_in: deque[Token] = deque(maxlen=64)  # of the next token of training
        self._seen: Counter[tuple[str, str]] = Counter()  # by kind and key, also beyond the history
        self._latest: deque[str] = deque(maxlen=_LATEST)  # optimizers that have stepped
        self.optimizer_steps = 0
        self.trains = False

    def add(self, token: Token, lead: Lead = NO_LEAD) -> None:
        self._seen[token.kind, token.key] += 1
        if token.kind == FORWARD:
            self._forwards.append(token)
            if not token.trains:
                self._lead_in.append(token)
                return
        elif token.kind == OPTIMIZER:
            self.optimizer_steps += 1
            self._latest.append(token.key)
        self.trains = self.trains or token.kind != FORWARD
        lead_in = tuple(before for before in self._lead_in if before.key != token.key)
        self._training.append(TrainingEvent(token, lead_in, lead))
        self._lead_in.clear()

    @property
    def required(self) -> frozenset[str]:
        """The optimizers that are in every step: all that have stepped lately."""
        return frozenset(self._latest)

    def steps_seen(self, pattern: Pattern) -> int:
        """How many steps of this pattern were seen."""
        if pattern.closing == "optimizer":
            return self.optimizer_steps // pattern.optimizers
        kind, per_step = BACKWARD, pattern.backwards
        if pattern.closing == "forward":
            kind, per_step = FORWARD, pattern.forwards
        seen = sum(self._seen[kind, key] for key in pattern.keys)
        return seen // max(1, per_step)

    # ------------------------------------------------------------------------- training

    def training_pattern(self, optimizer_expected: bool) -> Pattern | None:
        """The step of a training script; None while it is not clear.

        With `optimizer_expected` a period without an optimizer step is not a step:
        gradient accumulation looks like that until the first one.
        """
        if not self.trains or (optimizer_expected and not self.optimizer_steps):
            return None
        tokens = [event.token for event in self._training]
        period = repeating_period(tokens, self.required)
        return None if period is None else self._training_from(_first_of(tokens, period), period)

    def single_optimizer_pattern(self) -> Pattern | None:
        """Everything up to one optimizer step, whatever the period; of steps that begin or end in
        different ways, one of the most frequent."""
        events = list(self._training)
        ends = [index for index, event in enumerate(events) if event.token.kind == OPTIMIZER]
        steps = {
            number: (events[b + 1].token, events[e].token)
            for number, (b, e) in enumerate(pairwise(ends))
        }
        if not steps:
            return None
        usual, _ = Counter(steps.values()).most_common(1)[0]
        last = max(number for number, way in steps.items() if way == usual)
        begin, end = ends[last] + 1, ends[last + 1] + 1
        pattern = self._training_from(begin, end - begin)
        # Modules that were made for this step do not come again.
        known = {token.key for event in events[:begin] for token in (event.token, *event.lead_in)}
        return pattern.visible_through(frozenset(known))

    def _training_from(self, start: int, period: int) -> Pattern:
        """The step whose events repeat from this index on."""
        events = list(self._training)
        tokens = tuple(event.token for event in events[start : start + period])
        ends = [i + 1 for i, token in enumerate(tokens) if token.kind == OPTIMIZER]
        if ends:
            tokens, tail = tokens[: ends[-1]], tokens[ends[-1] :]
            if any(token.kind == BACKWARD for token in tail) or self._begins(tail, tokens):
                tokens = (*tail, *tokens)
                start += ends[-1]
            # else: metrics after the optimizer step; they belong to the rest of the iteration
        recent = events[start::period][-3:]
        before = tuple(token for token in _common_lead_in(recent) if token.weighted)
        closing: Literal["optimizer", "next"] = "optimizer" if ends else "next"
        return Pattern((*before, *tokens), closing, NO_LEAD if before else _common_lead(recent))

    def _begins(self, tail: tuple[Token, ...], step: tuple[Token, ...]) -> bool:
        """Whether the script began its training with what follows the last optimizer step here.

        Then the stretch that repeats begins in the middle of a longer step: in a step of an
        encoder and of a decoder that is called once per token, at one call of the decoder.
        """
        if not tail or len(self._training) == self._training.maxlen:
            return False
        return self._training[0].token == tail[0] and tail[0] not in step

    # ------------------------------------------------------------------------- forwards

    def forward_pattern(self) -> Pattern | None:
        """The step of an inference script: a period of outermost forwards."""
        tokens = list(self._forwards)
        period = repeating_period(tokens)
        if period is None:
            return None
        start = _first_of(tokens, period)
        cycle = tokens[start : start + period]
        weighted = [index for index, token in enumerate(cycle) if token.weighted]
        if weighted:
            cycle = cycle[weighted[0] : weighted[-1] + 1]
        return Pattern(tuple(cycle), "forward")

    def single_forward_pattern(self) -> Pattern | None:
        """`--step-from forward`: one outermost forward of the module seen most often."""
        weighted = [token for token in self._forwards if token.weighted]
        often = Counter(weighted or self._forwards).most_common(1)
        return Pattern((often[0][0],), "forward") if often else None


def _common_lead_in(recent: list[TrainingEvent]) -> tuple[Token, ...]:
    """Forwards without gradients before the first training forward, if every step has them.

    The forward of a teacher or a generator belongs to the step. One of the trained module itself
    does not: that is a policy acting, or an evaluation.
    """
    found = {event.lead_in for event in recent}
    lead_in = found.pop()
    same = len(recent) > 1 and not found
    return lead_in if same and len(lead_in) <= _LONGEST_LEAD_IN else ()


def _common_lead(recent: list[TrainingEvent]) -> Lead:
    """What every step has before its first event."""
    zeroed = all(event.lead.zeroed for event in recent)
    return Lead(zeroed, all(event.lead.computed for event in recent))


class StepFollower:
    """Follows a known pattern event by event: which ones open and close a step.

    Runs within measured steps, so it makes a few comparisons and nothing else.
    """

    def __init__(self, pattern: Pattern):
        self.pattern = pattern
        self.inside = False
        self._forwards = self._backwards = self._optimizers = 0

    def opens(self, kind: str, key: str, trains: bool = True) -> bool:
        """True if this event opens a step. Call before the event's work starts."""
        opening = self.pattern.opened_by(kind, key, trains)
        return opening and (not self.inside or self._begins_anew())

    def opens_after(self, key: str) -> bool:
        """True if a step begins after this optimizer step, which is over."""
        first, last = self.pattern.first, self.pattern.tokens[-1]
        return first.kind == PREVIOUS_END and not self.inside and key == last.key

    def _begins_anew(self) -> bool:
        """Whether an opening event within a step is none of the step's own: it has had all of
        them, or was an evaluation with gradients, without a backward."""
        pattern = self.pattern
        if pattern.closing == "forward":
            return self._forwards >= pattern.forwards
        alone = pattern.first.kind == FORWARD and pattern.openings == 1
        return alone or 0 < pattern.backwards <= self._backwards

    def begin(self) -> None:
        self.inside = True
        self._forwards = self._backwards = self._optimizers = 0

    def closes(self, kind: str) -> bool:
        """True if this event, which is over, ends the step."""
        if not self.inside:
            return False
        if kind == OPTIMIZER:
            self._optimizers += 1
            return (
                self.pattern.closing == "optimizer" and self._optimizers >= self.pattern.optimizers
            )
        if kind == FORWARD:
            self._forwards += 1
            return self.pattern.closing == "forward" and self._forwards >= self.pattern.forwards
        self._backwards += 1
        return False

    def closes_before(self) -> bool:
        """For steps that end with the next opening event: is this one complete?"""
        return self.pattern.closing == "next" and self.after_backward()

    def before_backward(self) -> bool:
        """True until the first backward of the step is over."""
        return self.inside and self._backwards == 0

    def after_backward(self) -> bool:
        """True once the last backward of the step is over."""
        return self.inside and self._backwards >= self.pattern.backwards

    def end(self) -> None:
        self.inside = False
