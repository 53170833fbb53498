"""Executes the person's script or module as `python` would, in this process.

Same argv, `sys.path[0]`, `__main__` and exit code; tracebacks are printed without the
frames of launchscope.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import sys
import types
from collections.abc import Callable, Sequence

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_EXTRA_OURS = ("<launchscope>", "<frozen runpy>")


class StopRun(BaseException):
    """Ends the person's script from inside a hook once everything is measured.

    Not an Exception, so that `except Exception` in a script lets it pass.
    """


def is_ours(filename: str) -> bool:
    return filename.startswith(_OURS) or filename in _EXTRA_OURS


def without_our_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The same traceback without the frames of launchscope, wherever they are in it."""
    kept = []
    while traceback is not None:
        if not is_ours(traceback.tb_frame.f_code.co_filename):
            kept.append(traceback)
        traceback = traceback.tb_next
    result: types.TracebackType | None = None
    for entry in reversed(kept):
        result = types.TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def load_target(kind: str, name: str, args: Sequence[str]) -> Callable[[], None]:
    """Prepare `sys` and a fresh `__main__`; the result runs the target.

    Raises what Python itself raises for a file that cannot be read or compiled.
    """
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    if kind == "module":
        code, filename = _find_module(name, main)
        sys.argv[:] = [filename, *args]
    else:
        path = os.path.abspath(name)
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
        sys.argv[:] = [name, *args]
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        main.__file__ = path
        main.__dict__["__cached__"] = None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        main.__spec__ = None
    sys.modules["__main__"] = main

    def run() -> None:
        exec(code, main.__dict__)

    return run


def _find_module(name: str, main: types.ModuleType) -> tuple[types.CodeType, str]:
    sys.path.insert(0, os.getcwd())
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name}", name=name)
    get_code = getattr(spec.loader, "get_code", None)
    code = get_code(name) if get_code is not None else None
    if code is None:
        raise ImportError(f"No code object available for {name}", name=name)
    main.__file__ = spec.origin
    main.__spec__ = spec
    main.__loader__ = spec.loader
    main.__package__ = spec.parent
    main.__dict__["__cached__"] = spec.cached
    return code, spec.origin or name


def exit_code_of(error: BaseException) -> int:
    """The exit code that Python would end with; prints what Python would print."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xFF
        print(code, file=sys.stderr)
        return 1
    _forget_our_frames(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as ends:
        return exit_code_of(ends)
    except BaseException as broken:  # the script's own hook raised; Python shows both errors
        broken.__context__ = None
        _forget_our_frames(broken)
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(broken), broken, broken.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _forget_our_frames(error: BaseException) -> None:
    """Take them out of the error and of every error that caused it or is in its group."""
    left, seen = [error], set()
    while left:
        current = left.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = without_our_frames(current.__traceback__)
        linked = (current.__cause__, current.__context__, *_members(current))
        left += [other for other in linked if other is not None]


def _members(error: BaseException) -> tuple[BaseException, ...]:
    """The errors of an exception group (Python 3.11 and later)."""
    held = getattr(error, "exceptions", ())
    return tuple(e for e in held if isinstance(e, BaseException)) if type(held) is tuple else ()
