"""Executes the person's script or module as `python` would, in this process: the same argv,
`sys.path[0]`, `__main__` and exit code, and tracebacks without the frames of launchscope."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.machinery
import io
import os
import runpy
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from launchscope.runner.child.facts.source_lines import is_ours, note_script

# Modules of the child that no file of the script replaces.
_KEPT = frozenset({"__main__", "launchscope"})


class StopRun(BaseException):
    """Ends the person's script from inside a hook once everything is measured.

    Not an Exception, so that `except Exception` in a script lets it pass.
    """


def load_target(
    kind: str,
    name: str,
    args: Sequence[str],
    startup: frozenset[str],
    sources: Mapping[str, bytes],
) -> Callable[[], None]:
    """Prepare `sys` and a fresh `__main__`; the result runs the target.

    `startup` names the modules that Python itself had imported; `sources` are the contents of
    files, by real path, that are to be another one than theirs. Raises what Python raises for a
    file that cannot be read or compiled.
    """
    main = types.ModuleType("__main__")
    main.__loader__ = importlib.machinery.BuiltinImporter
    sys.modules["__main__"] = main
    if kind == "module":
        sys.argv[:] = ["-m", *args]
        _add_to_path(os.getcwd())
        run = functools.partial(runpy._run_module_as_main, name)  # type: ignore[attr-defined]
    else:
        sys.argv[:] = [name, *args]
        _add_to_path(os.path.dirname(os.path.realpath(name)))
        run = functools.partial(_run_file, _read_code(name, main, sources), main.__dict__)
    _forget_shadowed(startup)
    return run


def _add_to_path(folder: str) -> None:
    """The folder first on `sys.path`, unless -P, -I or PYTHONSAFEPATH keeps it out."""
    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
        sys.path.insert(0, folder)


def _run_file(code: types.CodeType, names: dict[str, Any]) -> None:
    try:
        exec(code, names)
    finally:  # what a script has printed appears before the error that ends it
        for stream in ("stderr", "stdout"):
            with contextlib.suppress(Exception):
                getattr(sys, stream).flush()


def _read_code(name: str, main: types.ModuleType, sources: Mapping[str, bytes]) -> types.CodeType:
    """The code of a source file."""
    main.__spec__ = None
    main.__file__ = path = name if os.path.isabs(name) else os.path.join(os.getcwd(), name)
    note_script(path)
    with io.open_code(path) as file:
        content = sources.get(os.path.realpath(path)) or file.read()
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    return compile(content, path, "exec", dont_inherit=True)


def _forget_shadowed(before: frozenset[str]) -> None:
    """Leaves the modules that launchscope has imported since `before` to the script's own ones.

    With a `json.py` beside it, `import json` gets that file, as under `python`. launchscope has
    imported all it needs by now, and keeps its own references.
    """
    loaded = {name.partition(".")[0] for name in sys.modules}
    loaded -= {name.partition(".")[0] for name in before} | _KEPT
    for name in loaded - set(sys.builtin_module_names):
        ours = getattr(getattr(sys.modules.get(name), "__spec__", None), "origin", None)
        finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
        found = next((spec for f in finders if (spec := f.find_spec(name, None))), None)
        if found is not None and found.origin != ours:
            for below in [n for n in sys.modules if n.partition(".")[0] == name]:
                del sys.modules[below]


# ------------------------------------------------------------------------------ its end


def exit_code_of(error: BaseException) -> int:
    """The exit code that Python would end with; prints what Python would print."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr or sys.__stderr__)
        return 1
    for part in _chain(error):
        part.__traceback__ = without_our_frames(part.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and every error that caused it or is in its group."""
    left: list[BaseException | None] = [error]
    seen = set()
    while left:
        current = left.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        left += [current.__cause__, current.__context__]
        if sys.version_info >= (3, 11) and isinstance(current, builtins.BaseExceptionGroup):
            left += current.exceptions


def without_our_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The same traceback without the frames of launchscope and of the import system. Python itself
    leaves out the latter only where no frame of ours is between them."""
    kept: list[types.TracebackType] = []
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not (is_ours(file) or file.startswith("<frozen importlib")):
            kept.append(traceback)
        traceback = traceback.tb_next
    for entry, following in zip(kept, [*kept[1:], None]):
        if entry.tb_next is not following:  # Python looks for a loop, through all that follow
            entry.tb_next = following
    return kept[0] if kept else None
