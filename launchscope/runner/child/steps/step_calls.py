"""Where the script makes the calls of its step, with the callers in its own code."""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import replace
from types import FrameType
from typing import NamedTuple

from launchscope.model import CallFrame, SourceLine, StepCall, StepCallKind
from launchscope.runner.child.events.step_pattern import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PREVIOUS_END,
    Pattern,
    Token,
)
from launchscope.runner.child.facts.source_lines import (
    Owner,
    owned_file,
    package_of,
    short_path,
    user_line,
)

_KEPT = 1200  # calls: two of the longest periods
_DEEPEST = 100  # frames of the person's
_KINDS: dict[str, StepCallKind] = {FORWARD: "forward", BACKWARD: "backward", OPTIMIZER: "step"}


class CallMade(NamedTuple):
    token: Token
    call: StepCall
    line: SourceLine | None

    def is_of(self, token: Token) -> bool:
        return (self.token.kind, self.token.key) == (token.kind, token.key)


class StepCalls:
    """The latest calls, in their order. Holds no frame, only where it was."""

    def __init__(self) -> None:
        self.calls: deque[CallMade] = deque(maxlen=_KEPT)
        self._since_mark = 0
        self._mark_line: SourceLine | None = None

    def add(self, token: Token) -> None:
        """The call that is made now."""
        frames = list[CallFrame]()
        frame: FrameType | None = sys._getframe(1)
        where, library = user_line(frame), None
        while frame is not None and len(frames) < _DEEPEST:
            code, line = frame.f_code, frame.f_lineno or 0
            file = code.co_filename
            owner = owned_file(file).owner
            if owner is Owner.PERSON:
                frames.append(CallFrame(short_path(file), line, code.co_name))
            elif owner is Owner.LIBRARY and not frames:
                library = SourceLine(short_path(file), line)
            frame = frame.f_back
        package = None if library is None else package_of(library)
        made = StepCall(_KINDS.get(token.kind, "zero_grad"), tuple(frames), package)
        self.calls.append(CallMade(token, made, where))
        self._since_mark += 1

    def mark(self) -> None:
        """A step that the script marks begins."""
        self._since_mark, self._mark_line = 0, user_line(sys._getframe(1))

    def of_step(self, pattern: Pattern | None) -> tuple[SourceLine | None, tuple[StepCall, ...]]:
        """The line at which the last step began, and its calls, each place once; of the last marked
        step without a pattern."""
        calls = list(self.calls)
        if pattern is None:
            calls = calls[len(calls) - self._since_mark :]
            line = self._mark_line
        else:
            calls = _last_step(calls, pattern)
            first = pattern.first if pattern.first.kind != PREVIOUS_END else pattern.tokens[-1]
            line = next((call.line for call in calls if call.is_of(first)), None)
            if pattern.backwards:
                calls = [call if call.token.trains else _inference(call) for call in calls]
        return line, tuple(dict.fromkeys(call.call for call in calls))


def _last_step(calls: list[CallMade], pattern: Pattern) -> list[CallMade]:
    """From the first call of the last step, and the zero_grad in front of it, to its last one."""
    wanted = [token for token in reversed(pattern.tokens) if token.kind != PREVIOUS_END]
    alone = [token.kind for token in wanted] == [OPTIMIZER]  # all between two optimizer steps
    index = end = len(calls)
    for token in wanted:
        while index and not calls[index - 1].is_of(token):
            index -= 1
            end = index if token is wanted[0] else end
        index -= 1
    index = max(0, index)
    while index and (alone or calls[index - 1].token.kind not in _KINDS):
        if alone and calls[index - 1].is_of(wanted[0]):
            break
        index -= 1
    return calls[index:end]


def _inference(call: CallMade) -> CallMade:
    return call._replace(call=replace(call.call, what="inference"))
