"""Gives a person's script other contents of some of its files, of which nothing is written."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import linecache
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from launchscope.runner.child.facts.imports import spec_behind


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
