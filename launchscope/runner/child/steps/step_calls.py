"""Where the script makes the calls of its step, with the callers in its own code."""

from __future__ import annotations

import contextlib
import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import FrameType

from launchscope.model import CallFrame, SourceDigest, SourceLine, StepCall, StepCallKind
from launchscope.runner.child.source_lines import (
    is_persons,
    short_path,
    start_folder,
    user_line,
)
from launchscope.runner.child.step_pattern import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    PREVIOUS_END,
    ZERO_GRAD,
    Pattern,
    Token,
)

_KEPT = 1200  # calls: two of the longest periods
_DEEPEST = 100  # frames of the person's
_KINDS: dict[str, StepCallKind] = {FORWARD: "forward", BACKWARD: "backward", OPTIMIZER: "step"}


class StepCalls:
    """The latest calls, in their order. Holds no frame, only where it was."""

    def __init__(self) -> None:
        self.calls: deque[tuple[Token, StepCall]] = deque(maxlen=_KEPT)
        self._lines: deque[SourceLine | None] = deque(maxlen=_KEPT)  # of the calls
        self._since_mark = 0
        self.mark_line: SourceLine | None = None

    def add(self, token: Token, call: FrameType | None) -> None:
        frames, frame = list[CallFrame](), call
        while frame is not None and len(frames) < _DEEPEST:
            code = frame.f_code
            if is_persons(code.co_filename):
                place = short_path(code.co_filename), frame.f_lineno or 0, code.co_name
                frames.append(CallFrame(*place))
            frame = frame.f_back
        self.calls.append((token, StepCall(_KINDS.get(token.kind, "zero_grad"), tuple(frames))))
        self._lines.append(user_line(call))
        self._since_mark += 1

    def mark(self, frame: FrameType) -> None:
        """A step that the script marks begins."""
        self._since_mark, self.mark_line = 0, user_line(frame)

    def opening_line(self, pattern: Pattern) -> SourceLine | None:
        """The line at which the last step began."""
        token, back = pattern.first, pattern.openings
        if token.kind == PREVIOUS_END:
            token, back = pattern.tokens[-1], 1
        elif token.kind == ZERO_GRAD:  # each of several optimizers has its own
            back = pattern.optimizers
        token = token._replace(weighted=False)
        lines = [line for (known, _), line in zip(self.calls, self._lines) if known == token]
        return lines[-min(back, len(lines))] if lines else None

    def of_step(self, pattern: Pattern | None) -> tuple[StepCall, ...]:
        """Of the last step, each place once; of the last marked one without a pattern."""
        calls = list(self.calls)
        if pattern is None:
            found = calls[len(calls) - self._since_mark :] if self._since_mark else []
        else:
            found = _last_step(calls, pattern)
        return tuple(dict.fromkeys(call for _, call in found))


def _last_step(
    calls: list[tuple[Token, StepCall]], pattern: Pattern
) -> list[tuple[Token, StepCall]]:
    """From the first call of the last step, and the zero_grad in front of it, to its last one."""
    wanted = [t for t in reversed(pattern.tokens) if t.kind in _KINDS]
    alone = [t.kind for t in wanted] == [OPTIMIZER]  # everything between two optimizer steps
    index = end = len(calls)
    for token in wanted:
        while index and not _same(calls[index - 1][0], token):
            index -= 1
            end = index if token is wanted[0] else end
        index -= 1
    index = max(0, index)
    while index and (alone or calls[index - 1][0].kind not in _KINDS):
        if alone and _same(calls[index - 1][0], wanted[0]):
            break
        index -= 1
    if not any(token.kind == BACKWARD for token in wanted):
        return calls[index:end]
    return [
        (token, call if token.trains else replace(call, what="inference"))
        for token, call in calls[index:end]
    ]


def _same(one: Token, other: Token) -> bool:
    return (one.kind, one.key) == (other.kind, other.key)


def digests(calls: Iterable[StepCall]) -> tuple[SourceDigest, ...]:
    """Of the files in which the calls were made, as they are now; of those that can be read."""
    files = dict.fromkeys(frame.file for call in calls for frame in call.frames)
    found = []
    for file in files:
        with contextlib.suppress(OSError):  # not with open(), which may be the script's own
            content = Path(start_folder(), file).read_bytes()
            found.append(SourceDigest(file, hashlib.sha256(content).hexdigest()))
    return tuple(found)
