"""The events of a script as tokens, and one step as a pattern of them. Knows nothing of torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, NamedTuple

from launchscope.model import StepEvent

FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"
ZERO_GRAD: Final = "zero_grad"
PREVIOUS_END: Final = "previous_end"  # the end of the step before


class Token(NamedTuple):
    """One event. `key` names the module or optimizer; `trains` = grad mode was on."""

    kind: StepEvent
    key: str
    trains: bool = True
    weighted: bool = False  # the module has parameters of its own


class Lead(NamedTuple):
    """What a training script did right before an event, since the training event before that.

    `zeroed`: it called zero_grad, before anything that a backward goes through. `computed`: what a
    backward goes through ran (after zero_grad, if that was called).
    """

    zeroed: bool = False
    computed: bool = False


NO_LEAD: Final = Lead()


@dataclass(frozen=True)
class Pattern:
    """One step as a sequence of tokens; its first token opens it.

    `closing` says what ends it: the last of its optimizer steps, the last of its forwards
    (inference), or, for training without torch.optim, the next opening event. `lead` is what every
    step has before its first token.
    """

    tokens: tuple[Token, ...]
    closing: Literal["optimizer", "forward", "next"]
    lead: Lead = NO_LEAD

    @cached_property
    def first(self) -> Token:
        return self.tokens[0]

    @cached_property
    def _opening(self) -> tuple[str, str, bool]:
        return self.first.kind, self.first.key, self.first.trains

    @cached_property
    def _counts(self) -> Counter[str]:
        return Counter(token.kind for token in self.tokens)

    @cached_property
    def forwards(self) -> int:
        return self._counts[FORWARD]

    @cached_property
    def backwards(self) -> int:
        return self._counts[BACKWARD]

    @cached_property
    def optimizers(self) -> int:
        return self._counts[OPTIMIZER]

    @cached_property
    def keys(self) -> frozenset[str]:
        return frozenset(token.key for token in self.tokens)

    @cached_property
    def openings(self) -> int:
        """How many events of a step look like the one that opens it."""
        return sum(self.opened_by(token.kind, token.key, token.trains) for token in self.tokens)

    def opened_by(self, kind: str, key: str, trains: bool) -> bool:
        """Whether such an event is one that opens a step."""
        return (kind, key, trains) == self._opening

    def visible_through(self, keys: frozenset[str]) -> Pattern | None:
        """The same step as seen when only forwards of `keys` can be observed.

        None if the visible events cannot tell where a step begins.
        """
        tokens = tuple(t for t in self.tokens if t.kind != FORWARD or t.key in keys)
        forwards = sum(token.kind == FORWARD for token in tokens)
        if not tokens or (self.closing == "forward" and forwards == 0):
            return None
        # Without a model of its own, such a step is recognized by its backward alone.
        if self.closing == "next" and forwards == 0 and any(t.weighted for t in self.tokens):
            return None
        # What cannot be seen at the beginning has run before the first event that can.
        hidden = self.first.weighted and self.first not in tokens
        lead = self.lead._replace(computed=self.lead.computed or hidden)
        return replace(self, tokens=tokens, lead=lead)._with_its_beginning()

    def _with_its_beginning(self) -> Pattern:
        """The same step from where its work begins, if that is before its first event."""
        first, lead = self.first.kind, self.lead
        headless = first == BACKWARD or (first == OPTIMIZER and lead.computed)
        if lead.zeroed and (headless or (first == FORWARD and lead.computed)):
            return replace(self, tokens=(Token(ZERO_GRAD, ZERO_GRAD), *self.tokens))
        if headless and self.closing == "optimizer":
            return replace(self, tokens=(Token(PREVIOUS_END, PREVIOUS_END), *self.tokens))
        return self
