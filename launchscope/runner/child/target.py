"""Executes the person's script or module as `python` would, in this process.

Same argv, `sys.path[0]`, `__main__` and exit code; tracebacks are printed without the
frames of launchscope.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import importlib.machinery
import importlib.util
import io
import marshal
import os
import pkgutil
import runpy
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launchscope.runner.child.code_owner import is_ours, note_script
from launchscope.visible import visible, without_commands

# Modules of the child that no file of the script replaces.
_KEPT = frozenset({"__main__", "launchscope"})
_NO_MODULE = runpy._Error  # type: ignore[attr-defined]
_print = print  # not what a script puts there
_PYC_START = importlib.util.MAGIC_NUMBER
_AS_IT_IS: Mapping[str, bytes] = types.MappingProxyType({})
_PYC_HEADER = 16  # magic number, flags, and a time and a size or a hash


class StopRun(BaseException):
    """Ends the person's script from inside a hook once everything is measured.

    Not an Exception, so that `except Exception` in a script lets it pass.
    """


def is_stop(error: BaseException) -> bool:
    """Whether the error is nothing but StopRun, as a TaskGroup or `raise ... from` wraps it."""
    if isinstance(error, StopRun):
        return True
    if sys.version_info >= (3, 11) and isinstance(error, builtins.BaseExceptionGroup):
        return all(map(is_stop, error.exceptions))
    cause = error.__cause__
    return isinstance(error, Exception) and cause is not None and is_stop(cause)


def without_our_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """The same traceback without the frames of launchscope, wherever they are in it, and without
    those of the import system around them, which Python leaves out itself where they are whole."""
    kept: list[types.TracebackType] = []
    after_ours = False
    while traceback is not None:
        after_ours = is_ours(_file(traceback)) or (after_ours and _imports(traceback))
        if not after_ours:
            kept.append(traceback)
        while after_ours and kept and _imports(kept[-1]):
            kept.pop()
        traceback = traceback.tb_next
    for entry, following in zip(kept, [*kept[1:], None]):
        if entry.tb_next is not following:  # Python looks for a loop, through all that follow
            entry.tb_next = following
    return kept[0] if kept else None


def _file(traceback: types.TracebackType) -> str:
    return traceback.tb_frame.f_code.co_filename


def _imports(traceback: types.TracebackType) -> bool:
    return _file(traceback).startswith("<frozen importlib")


def load_target(
    kind: str,
    name: str,
    args: Sequence[str],
    startup: frozenset[str],
    sources: Mapping[str, bytes] = _AS_IT_IS,
) -> Callable[[], None]:
    """Prepare `sys` and a fresh `__main__`; the result runs the target.

    `startup` names the modules that Python itself had imported; `sources` are the contents of
    files, by real path, that are to be another one than theirs. Raises what Python raises for a
    file that cannot be read or compiled.
    """
    main = types.ModuleType("__main__")
    # In the order in which Python makes them: a script may list its names.
    main.__loader__ = importlib.machinery.BuiltinImporter
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    options = sys.orig_argv[1 : -len(sys.argv)]
    words = ["-m", name] if kind == "module" else [name]
    sys.orig_argv[1:] = [*options, *words, *args]
    path = _as_python_names(name)
    if kind == "script" and name != "-":
        note_script(path)
    if kind == "module" or (name != "-" and pkgutil.get_importer(path) is not None):
        if kind == "module":
            sys.argv[:] = ["-m", *args]
            _add_to_path(os.getcwd())
        else:  # a folder or an archive with a __main__ in it
            sys.argv[:] = [name, *args]
            sys.path.insert(0, path)
        _forget_shadowed(startup)
        return functools.partial(_run_module, kind, name)
    sys.argv[:] = [name, *args]
    _add_to_path("" if name == "-" else os.path.dirname(os.path.realpath(path)))
    code = _read_code(name, path, main, sources)
    _forget_shadowed(startup)
    return functools.partial(_run_file, code, main.__dict__)


def _run_file(code: types.CodeType, names: dict[str, Any]) -> None:
    """What a file has printed appears before the error that ends it, but not of a module."""
    try:
        exec(code, names)
    finally:
        for stream in ("stderr", "stdout"):
            with contextlib.suppress(BaseException):  # of a class of the script, or not there
                getattr(sys, stream).flush()


def _as_python_names(name: str) -> str:
    """The absolute path of a script as Python writes it: `./train.py` keeps its dot."""
    if os.path.isabs(name):
        return name
    with contextlib.suppress(FileNotFoundError):  # the working directory was removed
        return os.getcwd() if name == "." else os.path.join(os.getcwd(), name)
    return name


def _add_to_path(folder: str) -> None:
    """The folder first on `sys.path`, unless -P, -I or PYTHONSAFEPATH keeps it out."""
    if not (getattr(sys.flags, "safe_path", False) or sys.flags.isolated):
        sys.path.insert(0, folder)


def _run_module(kind: str, name: str) -> None:
    runner = runpy._run_module_as_main  # type: ignore[attr-defined]
    try:
        if kind == "module":
            runner(name)
        else:
            runner("__main__", alter_argv=False)
    except SystemExit as ends:
        if isinstance(ends.__context__, _NO_MODULE):  # it quotes the name, and nothing has run
            ends.code = without_commands(visible(str(ends.code)))
        raise


def _read_code(
    name: str, path: str, main: types.ModuleType, sources: Mapping[str, bytes]
) -> types.CodeType:
    """The code of a source file, a .pyc file or, for `-`, of the standard input.

    Sets the names in `main` that Python sets for it.
    """
    main.__spec__ = None
    main.__file__ = "<stdin>" if name == "-" else path
    main.__dict__["__cached__"] = None
    if name == "-":
        return compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True)
    with io.open_code(path) as file:
        content = sources.get(os.path.realpath(path)) or file.read()
    if name.endswith(".pyc") or content.startswith(_PYC_START):
        main.__loader__ = importlib.machinery.SourcelessFileLoader("__main__", path)
        return _unpacked(content)
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    return compile(content, path, "exec", dont_inherit=True)


def _unpacked(content: bytes) -> types.CodeType:
    """The code in a .pyc file, refused as Python refuses it."""
    if content[:4] != importlib.util.MAGIC_NUMBER:
        raise RuntimeError("Bad magic number in .pyc file")
    code = marshal.loads(content[_PYC_HEADER:])
    if not isinstance(code, types.CodeType):
        raise RuntimeError("Bad code object in .pyc file")
    return code


def import_library(name: str) -> None:
    """Import a module of a library, which the script may never do. It gets nothing of the script's
    in place of the standard library, whether that is loaded or only beside the script, and with a
    `profile.py` there the script's own `import profile` still gets that file.

    Raises ImportError.
    """
    library, path = os.path.dirname(os.__file__), sys.path[:]
    own = {n: sys.modules.pop(n) for n in _instead_of(library)}
    before = frozenset(sys.modules)
    ahead = path.index(library) if library in path else 0
    sys.path[:] = path[ahead:] + path[:ahead]
    try:
        importlib.import_module(name)
    finally:
        sys.path[:] = path
        _forget_shadowed(before)
        sys.modules.update(own)


def _instead_of(library: str) -> list[str]:
    """The names of loaded modules that have the place of one in the folder of the standard library,
    and of those below them."""
    places = {}
    for name in sys.stdlib_module_names & sys.modules.keys():
        module = sys.modules[name]
        if isinstance(module, types.ModuleType):
            places[name] = vars(module).get("__file__")
    above = os.path.join(library, "")
    other = {n for n, file in places.items() if type(file) is str and not file.startswith(above)}
    return [name for name in list(sys.modules) if name.partition(".")[0] in other]


def _forget_shadowed(before: frozenset[str]) -> None:
    """Leaves the modules that launchscope has imported since `before` to the script's own ones.

    With a `json.py` beside it, `import json` gets that file, as under `python`. launchscope has
    imported all it needs by now, and keeps its own references.
    """
    loaded = {name.partition(".")[0] for name in list(sys.modules)}
    loaded -= {name.partition(".")[0] for name in before} | _KEPT
    for name in loaded:
        module = sys.modules.get(name)
        if module is None or name in sys.builtin_module_names:
            continue
        finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
        found = next((s for f in finders if (s := f.find_spec(name, None))), None)
        ours = getattr(getattr(module, "__spec__", None), "origin", None)
        if found is not None and found.origin != ours:
            for loaded_name in list(sys.modules):
                if loaded_name.partition(".")[0] == name:
                    del sys.modules[loaded_name]


def exit_code_of(error: BaseException) -> int:
    """The exit code that Python would end with; prints what Python would print."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
        with contextlib.suppress(BaseException):  # the script's own __str__
            _print(code, end="", file=_stderr())
        _print(file=_stderr())
        return 1
    _forget_our_frames(error)
    # As Python does: debuggers and exit handlers look there.
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as ends:
        return exit_code_of(ends)
    except BaseException as broken:  # the script's own hook raised; Python shows both errors
        broken.__context__ = None
        _forget_our_frames(broken)
        _print("Error in sys.excepthook:", file=_stderr())
        sys.__excepthook__(type(broken), broken, broken.__traceback__)
        _print("\nOriginal exception was:", file=_stderr())
        sys.__excepthook__(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _stderr() -> Any:
    """That of the script, or Python's own where the script has put None there."""
    return sys.__stderr__ if sys.stderr is None else sys.stderr


def _forget_our_frames(error: BaseException) -> None:
    """Take them out of the error and of every error that caused it or is in its group."""
    left: list[BaseException | None] = [error]
    seen = set()
    while left:
        current = left.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = without_our_frames(current.__traceback__)
        left += [current.__cause__, current.__context__]
        if sys.version_info >= (3, 11) and isinstance(current, builtins.BaseExceptionGroup):
            left += current.exceptions
