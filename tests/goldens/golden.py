"""What a golden keeps of a recording: everything but times, folders, hashes and versions."""

from __future__ import annotations

import json
import linecache
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from inspect import signature
from itertools import groupby
from pathlib import Path
from typing import Any

from launchscope.analysis import build_profile
from launchscope.model import OpCount, OpRecord, Recording, SourceLine, StepCall, TensorShape

ROOT = Path(__file__).parents[2]
# Of a machine, a file or a version, not of the step; `code` is in the line already.
_LEFT_OUT = {"sources", "unused_gpu", "version", "share_pct", "code"}
# Of the tests, between the interpreter and the script.
_STARTER = "forkserver.py"


def golden_text(recording: Recording, script: Path) -> str:
    """JSON without values that are the default. An entry for each step is one if all are equal."""
    lines = _Lines(script)
    inspect, metrics = recording.inspect, build_profile(recording).metrics
    data = {
        "runs": recording.runs,
        "mode": recording.mode,
        "step": lines.plain(recording.step),
        "metrics": {k: m.value for k, m in metrics.items() if m.exact and m.value is not None},
        "inspect": lines.plain(inspect),
        "failures": [[f.name, f.reason.code, lines.plain(f.where)] for f in recording.failures],
        "notes": recording.notes,
    }
    if inspect is not None:
        data["inspect"] |= {
            "signatures": _pattern(inspect.signatures),
            "step_ops": [lines.counts(counts) for counts in inspect.step_ops],
            "ops": lines.in_order(inspect.ops),
            "modules": Counter(".".join(op.modules) for op in inspect.ops),
            "notes": len(inspect.notes),
        }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


class _Lines:
    """Values as plain data, with the source text of lines; those of `script` without its name."""

    def __init__(self, script: Path) -> None:
        self._script = script

    def plain(self, value: Any) -> Any:
        if isinstance(value, SourceLine):
            return self._shown(value)
        if isinstance(value, TensorShape):
            return str(value)
        if isinstance(value, StepCall):
            frames = [f for f in value.frames if not f.file.endswith(_STARTER)]
            places = [f"{self._file(f.file)}{f.line} {f.function}" for f in frames]
            return f"{value.what}: {' < '.join(places)}"
        if hasattr(type(value), "__match_args__"):
            fields = signature(type(value)).parameters
            values = [(name, getattr(value, name)) for name in fields if name not in _LEFT_OUT]
            return {n: self.plain(own) for n, own in values if own != fields[n].default}
        if isinstance(value, tuple):
            plain = [self.plain(item) for item in value]
            if len(plain) > 1 and all(item == plain[0] for item in plain):
                return {f"each of {len(plain)}": plain[0]}
            return plain if any(isinstance(v, dict) for v in plain) else ", ".join(map(str, plain))
        return value

    def counts(self, counts: Sequence[OpCount]) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = defaultdict(dict)
        for own in counts:
            found[self._shown(own.where)][own.op] = own.count
        return found

    def in_order(self, ops: Sequence[OpRecord]) -> list[str]:
        """The ops in dispatch order, in one row for as long as they are of one line."""
        rows = groupby(ops, key=lambda record: record.where)
        return [f"{where and where.line}: {_repeated(op.op for op in run)}" for where, run in rows]

    def _shown(self, where: SourceLine | None) -> str:
        """`12: loss.backward()`"""
        if where is None:
            return "no line"
        text = linecache.getline(str(Path.cwd() / where.file), where.line).strip()
        return f"{self._file(where.file)}{where.line}: {text}"

    def _file(self, name: str) -> str:
        path = Path.cwd() / name
        if path == self._script:
            return ""
        inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
        if inside.is_relative_to(tempfile.gettempdir()):
            inside = Path(inside.stem[:-9])  # without the suffix of tempfile
        return f"{str(inside).rpartition('site-packages/')[2]}:"


def _repeated(names: Iterable[str]) -> str:
    runs = ((name.removeprefix("aten."), len([*run])) for name, run in groupby(names))
    return " ".join(name if count == 1 else f"{name}×{count}" for name, count in runs)


def _pattern(signatures: Sequence[str]) -> str:
    """Which steps are alike: "AAB"."""
    known = list(dict.fromkeys(signatures))
    return "".join(chr(ord("A") + known.index(own)) for own in signatures)
