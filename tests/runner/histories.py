"""Event sequences written as words, for tests of the step search.

Histories are written as words: `F.net` a forward of the module `net` with grad mode on, `f.net`
without, `F.mse~` a module without parameters, `B` a backward, `O.adam` an optimizer step, `Z` a
zero_grad and `N` work that a backward goes through, outside of modules.
"""

from __future__ import annotations

from launchscope.runner.child.events.step_pattern import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PREVIOUS_END,
    ZERO_GRAD,
    Lead,
    Pattern,
    Token,
)
from launchscope.runner.child.steps.search import StepFollower, StepSearch

PLAIN = "F.net B O.adam"


def token(word: str) -> Token:
    kind, _, key = word.partition(".")
    if kind == "Z":
        return Token(ZERO_GRAD, ZERO_GRAD)
    if kind == "B":
        return Token(BACKWARD, BACKWARD)
    if kind == "O":
        return Token(OPTIMIZER, key)
    return Token(FORWARD, key.rstrip("~"), kind != "f", not key.endswith("~"))


def words(pattern: Pattern) -> str:
    """The tokens of a pattern, written as histories are; `<` is the end of the step before."""
    alone = {ZERO_GRAD: "Z", PREVIOUS_END: "<", BACKWARD: "B"}
    return " ".join(alone.get(token.kind) or _word(token) for token in pattern.tokens)


def _word(token: Token) -> str:
    if token.kind == OPTIMIZER:
        return f"O.{token.key}"
    return f"{'F' if token.trains else 'f'}.{token.key}{'' if token.weighted else '~'}"


def searched(history: str) -> StepSearch:
    search = StepSearch()
    lead = Lead()
    for word in history.split():
        if word == "Z":
            lead = lead._replace(zeroed=lead.zeroed or not lead.computed)
        elif word == "N":
            lead = lead._replace(computed=True)
        else:
            search.add(token(word), lead)
            lead = Lead()
    return search


def trained(history: str, optimizer_expected: bool = True) -> Pattern:
    pattern = searched(history).training_pattern(optimizer_expected)
    assert pattern is not None
    return pattern


def followed(pattern: Pattern, history: str) -> list[str]:
    """The steps that a follower cuts out of a history: the words of each, begin to end."""
    follower = StepFollower(pattern)
    steps: list[str] = []
    current: list[str] = []

    def close() -> None:
        follower.end()
        steps.append(" ".join(current))

    for word in history.split():
        if word == "N":
            current.append(word)
            continue
        event = token(word)
        if follower.opens(event.kind, event.key, event.trains):
            if follower.closes_before():
                close()
            follower.begin()
            current = []
        current.append(word)
        if follower.closes(event.kind):
            close()
        if event.kind == OPTIMIZER and follower.opens_after(event.key):
            follower.begin()
            current = []
    return steps
