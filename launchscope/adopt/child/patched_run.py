"""Runs a person's script with a file of it replaced in memory, and counts the graphed calls."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

from launchscope.adopt.record import PATCHED_RESULT, PatchedCalls
from launchscope.runner.child.facts.imports import spec_behind
from launchscope.runner.child.facts.torch_types import Function, Value
from launchscope.runner.protocol.events import ScriptEnded
from launchscope.runner.protocol.folder import ChildFolder

_WINDOW = 16  # calls


def replace_sources(replaced: Mapping[str, str]) -> dict[str, bytes]:
    """From now on imports get the content of the second file for the first; the result is what
    each first one, a real path, is to hold."""
    contents = {path: Path(file).read_bytes() for path, file in replaced.items()}
    for path, content in contents.items():
        lines = importlib.util.decode_source(content).splitlines(keepends=True)
        linecache.cache[path] = (len(content), None, lines, path)  # for tracebacks and inspect
    sys.meta_path.insert(0, _OtherSources(contents))
    return contents


class _OtherSources:
    """A meta path finder that finds what those behind it find, with another content."""

    def __init__(self, contents: Mapping[str, bytes]):
        self._contents = contents

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = spec_behind(self, name, path)
        if spec is None or not spec.has_location or not spec.origin:
            return spec
        content = self._contents.get(os.path.realpath(spec.origin))
        if content is not None:
            spec.loader = _Loader(name, spec.origin, content)
            spec.cached = None
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, content: bytes):
        super().__init__(name, path)
        self._content = content

    def get_data(self, path: str) -> bytes:
        return self._content if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> Any:
        raise OSError  # no compiled file is this source's


class PatchedRun:
    """Notes the calls of graphed functions. One per process."""

    stops = False

    def __init__(self, folder: ChildFolder):
        self.finished = self.unwound = False
        self.suspect = None
        self._folder = folder
        self._calls = 0
        self._stamps: list[float] = []

    def install(self) -> None:
        from launchscope.graphed import GraphedStep

        kind: Any = GraphedStep
        kind.__call__ = functools.wraps(kind.__call__)(self._counted(kind.__call__))

    def _counted(self, call: Function) -> Function:
        def counted(step: Value, *args: Any, **kwargs: Any) -> Value:
            if self._calls % _WINDOW == 0:
                self._stamps.append(time.perf_counter())
            self._calls += 1
            return call(step, *args, **kwargs)

        return counted

    def absorbs(self, error: BaseException) -> bool:
        """No error of the script is ours."""
        return False

    def script_ended(self) -> None:
        from launchscope.graphed.capture import all_steps

        stats = [step.stats for step in list(all_steps)]
        windows = [(b - a) * 1e3 / _WINDOW for a, b in zip(self._stamps, self._stamps[1:])]
        self._folder.write(
            PATCHED_RESULT,
            PatchedCalls(
                eager=sum(found.eager for found in stats),
                captured=sum(found.captured for found in stats),
                replayed=sum(found.replayed for found in stats),
                call_ms=median(windows) if windows else None,
            ),
        )
        self._folder.emit(ScriptEnded(steps=self._calls))
