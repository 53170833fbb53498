"""The events of a script as tokens, and one step as a pattern of them. Knows nothing of torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


class Token(NamedTuple):
    """One event. `key` names the module or optimizer; `trains` = grad mode was on.

    `training` is the mode of a forward's module: an evaluation may well run with gradients.
    """

    kind: str
    key: str
    trains: bool = True
    weighted: bool = False  # the module has parameters of its own
    training: bool = True


@dataclass(frozen=True)
class Pattern:
    """One step as a token sequence, and how to recognise its two ends.

    `begin_key` is the module (or optimizer, for closures) whose event opens a step.
    `closing` says what ends it: the last of `optimizers` optimizer steps, the last of
    `forwards` forwards (inference), or, for training without torch.optim, the next data
    fetch or the next opening event, whichever comes first.
    """

    tokens: tuple[Token, ...]
    begin_kind: str
    begin_key: str
    begin_trains: bool
    closing: Literal["optimizer", "forward", "next"]
    forwards: int
    backwards: int
    optimizers: int
    begin_training: bool = True

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(token.key for token in self.tokens)

    @property
    def openings(self) -> int:
        """How many events of a step look like the one that opens it."""
        return sum(self.begun_by(*token[:3], token.training) for token in self.tokens)

    def begun_by(self, kind: str, key: str, trains: bool, training: bool) -> bool:
        """Whether such an event is one that opens a step."""
        return (
            key == self.begin_key
            and kind == self.begin_kind
            and trains == self.begin_trains
            and training == self.begin_training
        )

    def visible_through(self, keys: frozenset[str]) -> Pattern | None:
        """The same step as seen when only forwards of `keys` can be observed.

        None if what is left cannot tell where a step begins.
        """
        tokens = tuple(t for t in self.tokens if t.kind != FORWARD or t.key in keys)
        forwards = sum(token.kind == FORWARD for token in tokens)
        if not tokens or (self.closing == "forward" and forwards == 0):
            return None
        # Without a model of its own, such a step is told by its backward alone.
        if self.closing == "next" and forwards == 0 and any(t.weighted for t in self.tokens):
            return None
        first = tokens[0]
        return replace(
            self,
            tokens=tokens,
            begin_kind=first.kind,
            begin_key=first.key,
            begin_trains=first.trains,
            begin_training=first.training,
            forwards=forwards,
        )
