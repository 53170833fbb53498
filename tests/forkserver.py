"""Starts the Python processes of the tests as forks of a server that has imported torch.

Most of the time of a test with child processes is `import torch`. The server imports torch and a
few other libraries once, removes them from `sys.modules`, and forks for each process that a test
asks for. In the fork, `import torch` goes through the import system as usual, with its finders and
loaders, and gets the modules that the server has imported.

`Popen` replaces `subprocess.Popen`. A fork is a child of the process that asked for it, with its
own process group, signals, exit handlers and interpreter shutdown. Popen starts a real interpreter
if a fork would not be the same: other interpreter flags, another interpreter, `preexec_fn`, or
settings that a library reads when it is imported. A forked launchscope command forks its scripts
from a server of its own.
"""

from __future__ import annotations

import array
import atexit
import builtins
import contextlib
import copy
import ctypes
import gc
import importlib
import importlib.util
import inspect
import io
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ROOT = str(Path(__file__).parents[1])
_BOOT = """\
import sys
startup = set(sys.modules)
sys.path.insert(0, sys.argv[1])
from tests.forkserver import main
main(startup, int(sys.argv[2]))
"""
_CHILD, _EVERYTHING = "launchscope.runner.child.main", "launchscope.cli.app"
_START = "/launchscope/runner/child/enter/start.py"
_LAUNCHING = ("cli", "runner.parent.session")
_NOT_AHEAD = (
    "launchscope.__main__",
    "launchscope.pytest_plugin",
    "launchscope.integrations.lightning",  # need their libraries
    "launchscope.integrations.transformers",
)
# What is imported ahead, each with what is to be in sys.modules beside it. launchscope comes in two
# parts: what runs in the child, and everything.
_AHEAD: dict[str, tuple[str, ...]] = {
    "numpy": (),
    "torch": ("numpy",),
    "torch._dynamo": ("torch",),
    "torch._export.passes.collect_tracepoints_pass": ("torch._dynamo",),
    "torch._inductor.compile_fx": ("torch._dynamo",),
    "msgspec": (),
    "typer": (),
    "typer._adapters": ("typer",),
    "rich.console": (),
    "rich.table": (),
    "pytest": (),
    _CHILD: (),
    _EVERYTHING: (_CHILD,),
}
# Settings that an interpreter or a library reads once. A process that has other values than the
# server gets a real start.
_FIXED = (
    "HOME", "KMP_", "LC_", "LD_", "MALLOC_", "MKL_", "GOMP_", "OMP_", "OPENBLAS_", "PYTHON",
    "TORCH", "XDG_",
)  # fmt: skip
# Those that the fork puts into effect, or that are read when they are needed.
_FREE = (
    "PYTHONPATH", "PYTHONUNBUFFERED", "OPENBLAS_NUM_THREADS", "TORCHELASTIC_",
    "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TORCH_NCCL_", "XDG_CACHE_HOME",
)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """What a process is to be. `ignored` and `blocked` are signals."""

    arguments: list[str]  # after the interpreter
    folder: str
    environ: dict[str, str]
    parent: int
    group: int | None  # None: a session of its own
    ignored: list[int]
    blocked: list[int]
    launches: bool  # whether it starts processes from a server too


# ------------------------------------------------------------------------ who asks


class Server:
    """A server's address. `start` returns the pid of a new child of this process, or None."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._environ = dict(os.environ)
        self._owner = os.getpid()

    def start(self, wanted: Start, streams: Sequence[int]) -> int | None:
        if os.getpid() != self._owner or _fixed(wanted.environ) != _fixed(self._environ):
            return None
        with self._lock, _adopting():
            if self._connection is None:
                self._connection = self._first()
            try:
                _send(self._connection, json.dumps(asdict(wanted)).encode(), streams)
                answer = self._connection.recv(64)
            except OSError:
                answer = b""
        return int(answer) if answer else None

    def _first(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, _ROOT, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=self._environ | {"OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

        def end() -> None:
            ours.close()
            process.wait()

        atexit.register(end)
        return ours


class Popen(subprocess.Popen[Any]):
    """subprocess.Popen, which takes a process from the server where that makes no difference."""

    server: Server | None = None
    forked = False

    def _execute_child(self, *given: Any) -> None:
        really = super()._execute_child  # type: ignore[misc]
        asked = inspect.signature(really).bind(*given).arguments
        wanted = _understood(asked)
        server = Popen.server
        if wanted is not None and server is not None:
            streams = [
                own if fd == -1 else fd
                for own, fd in enumerate((asked["p2cread"], asked["c2pwrite"], asked["errwrite"]))
            ]
            sys.audit("subprocess.Popen", sys.executable, asked["args"], asked["cwd"], None)
            pid = server.start(wanted, streams)
            if pid is not None:
                self.pid, self.forked = pid, True
                self._child_created = True
                self._close_pipe_fds(  # type: ignore[attr-defined]
                    *(asked[name] for name in (
                        "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"
                    ))
                )  # fmt: skip
                return
        really(*given)


def usual_signals() -> None:
    """For `preexec_fn`: as in a terminal. What runs in the background inherits ignored signals."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)


def install(server: Server | None) -> None:
    """From now on this process takes its Python processes from `server`, if there is one."""
    Popen.server = server
    subprocess.Popen = Popen  # type: ignore[misc]


def _understood(asked: dict[str, Any]) -> Start | None:
    """What `Popen` was asked for as a start; None where it has to be a real one."""
    arguments = asked["args"]
    if not isinstance(arguments, (list, tuple)):
        return None
    command = [os.fsdecode(part) for part in arguments]
    flags = 1
    if command[flags : flags + 1] == ["-u"]:
        flags += 1
    while command[flags : flags + 1] == ["-W"]:
        flags += 2
    plain = (
        command[0] == sys.executable
        and asked["executable"] in (None, sys.executable)
        and len(command) > flags
        and (command[flags] in ("-c", "-m", "-") or not command[flags].startswith("-"))
        and asked.get("process_group", -1) == -1
        and asked["preexec_fn"] in (None, usual_signals)
        and not any(asked[name] for name in ("pass_fds", "shell", "startupinfo"))
        and all(asked[name] in (None, -1) for name in ("gid", "gids", "uid", "umask"))
    )  # fmt: skip
    if not plain or not sys.platform.startswith("linux"):
        return None
    environ = os.environ if asked["env"] is None else asked["env"]
    if not all(map(_can_be_added, _python_path(environ))):
        return None
    ignored = {n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN}
    if asked["preexec_fn"] is not None:
        ignored -= set(_ENDING)
    return Start(
        arguments=command[1:],
        folder=os.path.abspath(os.fsdecode(asked["cwd"] or ".")),
        environ={os.fsdecode(key): os.fsdecode(value) for key, value in environ.items()},
        parent=os.getpid(),
        group=None if asked["start_new_session"] else os.getpgid(0),
        ignored=sorted(ignored),
        blocked=[int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        launches=_launches(command),
    )


def _python_path(environ: Mapping[str, str]) -> list[str]:
    found = environ.get("PYTHONPATH", "")
    return found.split(os.pathsep) if found else []


def _can_be_added(folder: str) -> bool:
    """Whether a folder of PYTHONPATH changes nothing but where modules are looked for."""
    starts = ("sitecustomize.py", "usercustomize.py")
    return os.path.isabs(folder) and not any(os.path.exists(f"{folder}/{name}") for name in starts)


def _launches(command: Sequence[str]) -> bool:
    """Whether this is a launchscope that runs scripts: a command, or code that calls it."""
    if "-c" in command:
        code = command[command.index("-c") + 1]
        return any(f"from launchscope.{part} import" in code for part in _LAUNCHING)
    module = command[command.index("-m") + 1] if "-m" in command else ""
    return module in ("launchscope", "torch.distributed.run")


def _is_launchscope(arguments: Sequence[str]) -> bool:
    """Whether this is the command, or the process in which it runs a script."""
    return arguments[:2] == ["-m", "launchscope"] or arguments[0].endswith(_START)


def _fixed(environ: dict[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in environ.items()
        if key.startswith(_FIXED) and not key.startswith(_FREE)
    }


@contextlib.contextmanager
def _adopting() -> Any:
    """Meanwhile a process below this one that loses its parent becomes our child."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)


def _send(connection: socket.socket, message: bytes, fds: Sequence[int]) -> None:
    # The message goes through a file, as one of a socket has a bound.
    with open(os.memfd_create("start"), "wb", buffering=0) as file:
        file.write(message)
        rights = array.array("i", [*fds, file.fileno()])
        connection.sendmsg([b"start"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


# ----------------------------------------------------------------------- the server


class _Shelf:
    """A meta path finder of the modules that were imported ahead."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, ModuleType]] = {}
        self.modules: dict[str, ModuleType] = {}
        # Made ahead: a fork that looks at every module copies the pages of all of them.
        self._foreign: dict[str, ModuleType] = {}
        self._standard: dict[str, ModuleType] = {}

    def take(self, startup: set[str]) -> None:
        """Import everything, and leave in sys.modules what Python itself starts with."""
        before = set(sys.modules)
        for name in _AHEAD:
            if importlib.util.find_spec(name) is None:
                continue  # not every version of typer has its adapters
            importlib.import_module(name)
            if name == _EVERYTHING:
                package = sys.modules["launchscope"]
                for module in pkgutil.walk_packages(package.__path__, "launchscope."):
                    if module.name not in _NOT_AHEAD:
                        importlib.import_module(module.name)
            self._groups[name] = {n: m for n, m in sys.modules.items() if n not in before}
            before = set(sys.modules)
        for name in before - startup - {"copyreg"}:  # `find_spec` needs it for a copy
            self.modules[name] = sys.modules.pop(name)
        for name, known in self.modules.items():
            if name.partition(".")[0] != "launchscope":
                self._foreign[name] = known
            if name.partition(".")[0] in sys.stdlib_module_names:
                self._standard[name] = known
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        module = self.modules.get(name)
        own = module.__spec__ if module is not None else None
        if module is None or own is None:
            return None
        if own.has_location and ("." not in name or name.startswith("launchscope.")):
            found = PathFinder.find_spec(name, path)  # something else may come before it
            if found is None or found.origin != own.origin:
                return None
        spec = copy.copy(own)
        spec.loader = _Again(self, module, own)
        return spec

    def withhold_launchscope(self) -> None:
        """Let its modules be imported as usual."""
        self.modules = self._foreign

    def take_back(self) -> None:
        """At the very end of a process: what was imported ahead stays as it is."""
        for name in [*sys.modules]:
            if sys.modules[name] is self.modules.get(name):
                del sys.modules[name]

    def give(self, name: str) -> None:
        """Put into sys.modules what importing `name` brings along."""
        if name.startswith("launchscope."):
            if name not in _AHEAD:
                name = _CHILD if name in self._groups[_CHILD] else _EVERYTHING
            # It has imported more of the standard library than its own group, and C code of Python
            # looks for json.decoder and threading in sys.modules only.
            for member, module in self._standard.items():
                sys.modules.setdefault(member, module)
        for needed in _AHEAD.get(name, ()):
            self.give(needed)
        group = self._groups.get(name, {})
        if name in sys.stdlib_module_names and not group:  # the server itself has imported it
            group = {n: m for n, m in self._standard.items() if n.startswith(f"{name}.")}
        for member, module in group.items():
            sys.modules.setdefault(member, module)


class _Again(SourceFileLoader):
    """Loads a module that has been executed before: its code is empty this time."""

    def __init__(self, shelf: _Shelf, module: ModuleType, own: ModuleSpec) -> None:
        super().__init__(own.name, "")
        self._shelf, self._module, self._own = shelf, module, own

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def get_code(self, fullname: str) -> CodeType:
        # A module of settings lets nobody assign others.
        vars(self._module)["__spec__"] = self._own
        self._shelf.give(self._own.name)
        return compile("", "", "exec")


def _serve(connection: socket.socket) -> tuple[Start, list[int]]:
    """Fork for each start. Returns in the processes that are to become one."""
    while True:
        message, streams = _received(connection)
        if not message:
            os._exit(0)
        start = Start(**json.loads(message))
        between = os.fork()
        if between == 0:
            # Ends at once, so that the process becomes a child of the one that asked for it.
            between = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0002)
            if os.getppid() != start.parent:  # it was killed
                os._exit(0)
            if start.group is None:
                os.setsid()
            else:
                os.setpgid(0, start.group)
            connection.send(str(os.getpid()).encode())
            connection.close()
            return start, streams
        os.waitpid(between, 0)
        for fd in streams:
            os.close(fd)


def _received(connection: socket.socket) -> tuple[bytes, list[int]]:
    fds = array.array("i")
    message, rights, _, _ = connection.recvmsg(64, socket.CMSG_SPACE(4 * fds.itemsize))
    for _, _, data in rights:
        fds.frombytes(data)
    if not message:
        return b"", []
    with open(fds.pop(), "rb") as file:
        file.seek(0)
        return file.read(), list(fds)


def _serve_below(streams: Sequence[int]) -> tuple[Start, list[int]] | None:
    """Give this process a server of its own. Returns a start in the processes of that server."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() != 0:
        theirs.close()
        install(Server(ours))
        return None
    ours.close()
    os.setpgid(0, 0)  # Ctrl-C is not for the server
    for fd in streams:
        os.close(fd)
    return _serve(theirs)


# ------------------------------------------------------------------------ the process


def _become(start: Start, streams: Sequence[int]) -> None:
    """Make of this process what Python makes of one before it runs any code."""
    for fd, given in enumerate(streams):
        os.dup2(given, fd)
    for given in streams:
        if given > 2:
            os.close(given)
    for number in signal.valid_signals():
        if number in start.ignored:
            signal.signal(number, signal.SIG_IGN)
        elif signal.getsignal(number) == signal.SIG_IGN:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
    signal.pthread_sigmask(signal.SIG_SETMASK, start.blocked)
    with contextlib.suppress(AttributeError):  # not glibc
        # Once Python is through: the C++ libraries need not be taken apart either.
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, None)
        libc.on_exit(libc._IO_flush_all, None)
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED")) or "-u" in start.arguments[:1]
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _text_stream(fd, unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _set_environ(environ: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)


def _text_stream(fd: int, unbuffered: bool) -> io.TextIOWrapper:
    before = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[fd]
    assert isinstance(before, io.TextIOWrapper)
    raw = io.FileIO(fd, "r" if fd == 0 else "w", closefd=False)
    raw.name = f"<{('stdin', 'stdout', 'stderr')[fd]}>"
    buffer: Any = raw
    if fd == 0 or not unbuffered:
        buffer = io.BufferedReader(raw) if fd == 0 else io.BufferedWriter(raw)
    stream = io.TextIOWrapper(
        buffer,
        before.encoding,
        before.errors,
        newline=None if fd == 0 else "\n",
        line_buffering=not unbuffered and (fd == 2 or raw.isatty()),
        write_through=unbuffered and fd > 0,
    )
    stream.mode = "r" if fd == 0 else "w"  # type: ignore[misc]
    return stream


def _run(arguments: list[str], shelf: _Shelf, environ: Mapping[str, str]) -> None:
    """Run a command line of Python's as `__main__`. `environ` is the server's."""
    own = set(_python_path(environ))
    path = [folder for folder in sys.path[2:] if folder not in own]  # less what _BOOT has put there
    path = list(dict.fromkeys([*map(os.path.abspath, _python_path(os.environ)), *path]))
    sys.orig_argv = [sys.executable, *arguments]
    if arguments[0] == "-u":  # pytest-xdist's, which launchscope hands on
        del arguments[0]
    while arguments[0] == "-W":
        sys.warnoptions.append(arguments[1])
        warnings._processoptions([arguments[1]])  # type: ignore[attr-defined]
        del arguments[:2]
    if not _is_launchscope(arguments):
        shelf.withhold_launchscope()  # a test may patch a module before others import it
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    kind = arguments[0]
    if kind == "-m":
        sys.argv, sys.path = ["-m", *arguments[2:]], [os.getcwd(), *path]
    elif kind == "-c":
        sys.argv, sys.path = ["-c", *arguments[2:]], ["", *path]
    elif kind == "-":
        sys.argv, sys.path = arguments, ["", *path]
        main.__file__ = "<stdin>"
    else:
        sys.argv, sys.path = arguments, [os.path.dirname(os.path.realpath(kind)), *path]
        main.__file__ = os.path.abspath(kind)
    sys.modules["__main__"] = main
    try:
        if kind == "-m":
            runpy._run_module_as_main(arguments[1])  # type: ignore[attr-defined]
        elif kind == "-c":
            exec(compile(arguments[1], "<string>", "exec", dont_inherit=True), main.__dict__)
        elif kind == "-":
            source = sys.stdin.buffer.read()
            exec(compile(source, "<stdin>", "exec", dont_inherit=True), main.__dict__)
        else:
            code = compile(
                Path(kind).read_bytes(), os.path.abspath(kind), "exec", dont_inherit=True
            )
            exec(code, main.__dict__)
        _end_early(0)
    except SystemExit as end:
        _end_early(_exit_code(end.code))
        raise
    except BaseException as error:
        frames = error.__traceback__ and error.__traceback__.tb_next  # less this function
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        sys.excepthook = lambda *_: None
        if not isinstance(error, KeyboardInterrupt):  # which ends a process by a signal
            _end_early(1)
        raise


def _exit_code(given: object) -> int:
    """Of `SystemExit`, as `exit` of C takes it."""
    if given is None:
        return 0
    if not isinstance(given, int):
        return 1
    return given & 0xFF if -(1 << 63) <= given < 1 << 63 else 0xFF


class _End:
    """Ends the process as soon as nobody refers to it."""

    def __init__(self, code: int) -> None:
        libc = ctypes.CDLL(None)
        self.code, self.flush, self.exit = code, libc._IO_flush_all, libc._exit
        self.streams = [sys.__stdout__, sys.__stderr__]

    def __del__(self) -> None:
        for stream in self.streams:
            try:
                if stream is not None and not stream.closed:
                    stream.flush()
            except OSError:
                self.code = 120
        self.flush()
        self.exit(self.code)


def _end_early(code: int) -> None:
    """End with this code where Python is through with its modules. What it does after that, to
    every string that is interned, copies half of the server's memory."""
    with contextlib.suppress(AttributeError):  # not glibc
        vars(sys)["the end"] = _End(code)  # the last entry, so the last that Python removes


def main(startup: set[str], connection_fd: int) -> None:
    """Returns to Python, and so to its own end, in each process that was asked for."""
    os.setpgid(0, 0)
    connection = socket.socket(fileno=connection_fd)
    shelf, environ = _Shelf(), dict(os.environ)
    atexit.register(shelf.take_back)  # the first, so the last that is called
    shelf.take(startup)
    # torch's operators need not be taken apart either when a process ends.
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        finalizer.atexit = False
    _set_environ(environ)  # libraries have put settings of theirs there
    gc.collect()
    gc.freeze()
    start, streams = _serve(connection)
    while start.launches:
        below = _serve_below(streams)
        if below is None:
            break
        start, streams = below
    _set_environ(start.environ)
    os.chdir(start.folder)
    # These modules keep what they found when they were imported. An environment whose start-up
    # imports one of them has it outside of the shelf.
    for name, setting, value in (
        ("tempfile", "tempdir", None),
        ("multiprocessing.process", "ORIGINAL_DIR", start.folder),
        ("launchscope.runner.child.facts.source_lines", "_START", start.folder),
    ):
        setattr(shelf.modules.get(name) or sys.modules[name], setting, value)
    _become(start, streams)
    _run(start.arguments, shelf, environ)
