"""A script under launchscope sees, prints, raises and returns what it does under `python`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

import launchscope
from tests.runner.children import ENVIRONMENT, SMALL_STEP, Said, python

pytestmark = [pytest.mark.child, pytest.mark.real_start]

# Runs one case without what launchscope itself prints.
DRIVER = """\
import json, sys
case = json.loads(sys.argv[1])
sys.path.insert(0, case["root"])
from pathlib import Path
from launchscope.errors import UsageError
from launchscope.model import Schedule
from launchscope.runner.parent import interpreter
from launchscope.runner.parent.session import RunOptions, record
from launchscope.workflows.target import script_target

interpreter.subprocess._args_from_interpreter_flags = lambda: list(case["flags"])
words, module = case["words"], case["words"][0] == "-m"
try:
    target = script_target(words[module:], module=module, command="profile")
except UsageError as error:
    sys.exit(f"UsageError: {error}")
options = RunOptions(interpreter.Process(python=case["python"]))
folder, schedule = Path(case["results"]), Schedule(full=case["full"])
outcome = record(target, schedule, options, folder, lambda event: None)
sys.exit(outcome.exit_code)
"""
# Prints what a script is promised of the way it was started.
SURROUNDINGS = """\
import json, os, sys
seen = {
    "argv": sys.argv, "path": sys.path, "flags": list(sys.flags), "xoptions": sys._xoptions,
    "name": __name__, "file": globals().get("__file__"), "package": __package__,
    "loader": type(__loader__).__name__, "spec": getattr(__spec__, "name", None),
    "main": sys.modules["__main__"].__dict__ is globals(), "cwd": os.getcwd(),
    "code": sys._getframe().f_code.co_filename, "stdin": sys.stdin.read(),
    "encoding": sys.stdout.encoding, "warnings": sys.warnoptions, "limit": sys.getrecursionlimit(),
    "environ": sorted(n for n in os.environ if n not in ("LAUNCHSCOPE", "_", "LC_CTYPE")),
}
print(json.dumps(seen, indent=1, default=str))
"""
FAILS = "import sys\nprint('out')\ndef f(): raise KeyError('gone')\nf()\n"
IN_BACKWARD = """
import torch
class Bad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("no gradient today")
net = torch.nn.Linear(2, 2)
try:
    Bad.apply(net(torch.ones(1, 2))).sum().backward()
except RuntimeError as error:
    raise ValueError("gave up") from error
"""
# The processes of the pool import the script without torch.
PICKLED = """
import multiprocessing, pickle
def collate(items):
    import torch
    return torch.tensor(items)
def double(value):
    return value * 2
if __name__ == "__main__":
    from torch.utils.data import DataLoader
    for context in ("fork", "spawn"):
        loader = DataLoader(range(8), batch_size=4, num_workers=1, collate_fn=collate,
                            multiprocessing_context=context)
        print(context, [batch.sum().item() for batch in loader])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(double, [1, 2]))
"""
STOPPED = (
    SMALL_STEP
    + """
import atexit
atexit.register(print, "at exit")
try:
    for _ in range(40): step()
    print("last line")
except Exception:
    print("caught")
finally:
    print("finally", net.weight.grad is not None)
"""
)
# Names that launchscope itself imports before the script runs, and the one that it waits for.
LIBRARY_NAMES = (
    "json", "dataclasses", "threading", "signal", "typing", "tempfile", "random", "queue",
    "contextlib", "ast", "linecache", "inspect", "pickle", "platform", "copy", "statistics", "nvtx",
    "importlib", "types", "functools", "runpy", "pkgutil", "atexit", "weakref", "logging",
    "torch",
)  # fmt: skip
IMPORTS = "import json, typing, threading\nprint(json.__file__)\n"


@dataclass
class Case:
    """Words after `python` (and after `launchscope profile`), in a folder with these files."""

    words: tuple[str, ...]
    flags: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    stdin: str = "typed\n"


def case(words: str, flags: str = "", **more: Any) -> Case:
    return Case(tuple(words.split()), tuple(flags.split()), **more)


CASES = {
    **{
        f"named {words}": case(f"{words} a --flag -o p")
        for words in ("script.py", "sub/link.py", "-m package.sub.deep")
    },
    **{f"option {flags}": case("script.py x", flags) for flags in ("-O", "-I")},
    "PYTHONPATH": case("script.py", environ={"PYTHONPATH": "sub:folder"}),
    **{
        f"fails: {name}": case(f"{name}.py")
        for name in ("fails", "latin", "interrupted", "os_exit")
    },
    "fails: in the backward": case("in_backward.py"),
    "workers that pickle the script's functions": case("pickled.py"),
    "fails: a package named torch": case("own_torch/script.py"),
    "own files with the names of libraries": case("own/script.py"),
    "own files in the working directory, with -m": case("-m imports"),
}


def make_files(here: Path) -> None:
    sources = {
        "script.py": SURROUNDINGS,
        "package/__init__.py": "",
        "package/sub/__init__.py": "",
        "package/sub/deep.py": SURROUNDINGS,
        "sub/__init__.py": "",
        "imports.py": IMPORTS,
        "fails.py": FAILS,
        "in_backward.py": IN_BACKWARD,
        "pickled.py": PICKLED,
        "interrupted.py": "print('x')\nraise KeyboardInterrupt\n",
        "os_exit.py": "import os\nprint('before', flush=True)\nos._exit(3)\n",
        "own/script.py": "".join(
            f"import {name}\nprint({name}.__file__, {name}.OWN)\n" for name in LIBRARY_NAMES
        ),
        **{f"own/{name}.py": "OWN = 1\nprint('ran', __name__)\n" for name in LIBRARY_NAMES},
        "own_torch/script.py": "import torch\n",
        "own_torch/torch/__init__.py": "1/0\n",
    }  # fmt: skip
    for name, source in sources.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.encode())
    (here / "latin.py").write_bytes("print('\xe9')\n".encode("latin-1"))
    (here / "sub" / "link.py").symlink_to(here / "script.py")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("like_python") / "here"
    make_files(folder)
    return folder


def driven(
    folder: Path, *words: str, flags: Any = (), full: bool = True, other: str | None = None
) -> tuple[str, ...]:
    """The words after `python` that run a script under launchscope."""
    job = {
        "words": words, "flags": flags, "full": full, "python": other,
        "results": str(folder / "results"), "root": str(Path(__file__).parents[2]),
    }  # fmt: skip
    return "-c", DRIVER, json.dumps(job)


@pytest.mark.parametrize("name", CASES)
def test_a_script_sees_prints_and_returns_what_it_does_under_python(
    here: Path, name: str, tmp_path: Path
) -> None:
    case = CASES[name]
    words = [word.format(here=here) for word in case.words]
    plain, ours = (
        subprocess.run(
            [sys.executable, *command], cwd=here,
            env={**ENVIRONMENT, **case.environ}, input=case.stdin, capture_output=True,
            timeout=60, text=True, check=False,
        )
        for command in ([*case.flags, *words], driven(tmp_path, *words, flags=case.flags))
    )  # fmt: skip
    assert ours.stdout == plain.stdout
    assert comparable(ours.stderr) == comparable(plain.stderr)
    assert str(Path(launchscope.__file__).parent) not in ours.stderr
    # A script that ended well but made no step could not be measured. A shell shows a process
    # that SIGINT ended as 130.
    assert ours.returncode == {0: 3, -signal.SIGINT: 130}.get(plain.returncode, plain.returncode)


def test_the_script_knows_that_it_runs_under_launchscope(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, launchscope\nprint(os.environ['LAUNCHSCOPE'], launchscope.step.__name__)\n"
        "with launchscope.step(), launchscope.region('x'): print('in')\n"
    )
    assert python(tmp_path, *driven(tmp_path, "script.py")).out == "1 step\nin\n"


def test_another_interpreter_runs_the_script(tmp_path: Path) -> None:
    """A virtual environment of its own, in which launchscope is not installed."""
    other = tmp_path / "env" / "bin" / "python"
    other.parent.mkdir(parents=True)
    other.symlink_to(os.path.realpath(sys.executable))
    base = Path(os.path.realpath(sys.executable)).parent
    configuration = f"home = {base}\ninclude-system-site-packages = false\n"
    (tmp_path / "env" / "pyvenv.cfg").write_text(configuration)
    (tmp_path / "script.py").write_text("import sys; print(sys.prefix)")
    said = python(tmp_path, *driven(tmp_path, "script.py", other=str(other)))
    assert (said.code, said.out.strip()) == (3, str(tmp_path / "env"))


@pytest.mark.parametrize("full", [False, True])
def test_the_run_ends_after_the_last_pass_with_its_finally_blocks(
    tmp_path: Path, full: bool
) -> None:
    (tmp_path / "script.py").write_text(STOPPED)
    said = python(tmp_path, *driven(tmp_path, "script.py", full=full))
    to_its_end = "last line\nfinally True\nat exit\n"
    assert said == Said(0, "finally True\nat exit\n" + to_its_end * full, "")


def test_files_that_a_shell_opens_for_a_script_are_open(tmp_path: Path) -> None:
    """As in `python script.py <(...) 3>log`, where both are numbers of open files."""
    (tmp_path / "script.py").write_text(
        "import os, sys\nos.write(int(sys.argv[2]), open(sys.argv[1], 'rb').read())\n"
    )
    (read, given), (log, write) = os.pipe(), os.pipe()
    os.write(given, b"given")
    os.close(given)
    subprocess.run(
        [sys.executable, "-m", "launchscope", "profile", "-q", "script.py", f"/dev/fd/{read}",
         str(write)],
        cwd=tmp_path,
        env=ENVIRONMENT,
        pass_fds=(read, write),
        timeout=60,
        check=False,
    )  # fmt: skip
    os.close(write)
    assert os.read(log, 100) == b"given"
    os.close(read)
    os.close(log)


def comparable(printed: str) -> str:
    """Without torch's own frames, some of which only run where hooks are, and its log lines. What
    cannot be decoded has another sentence: Python reads a script's file in a way of its own."""
    frame = rf'  File "{re.escape(str(Path(torch.__file__).parent))}/.*\n(?:    .*\n)*'
    printed = re.sub(r"(?m)^[EW]\d{4} .*\n", "", re.sub(frame, "", printed))
    return printed if "SyntaxError" not in printed else "SyntaxError"


def test_no_file_of_the_working_directory_runs_before_the_script(tmp_path: Path) -> None:
    """Neither in the command nor in the script's process; `python -m` alone imports runpy."""
    here, marks = tmp_path / "here", tmp_path / "here" / "ran"
    here.mkdir()
    for name in sys.stdlib_module_names | {"torch", "numpy", "rich", "typer", "msgspec", "nvtx"}:
        (here / f"{name}.py").write_text("open('ran', 'a').write(__name__ + ' ')\n")
    marks.touch()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "script.py").write_text("import json\nprint(json.__file__)\n")
    script = "../elsewhere/script.py"
    for words in (["profile", "-q", script], ["doctor"], ["report", "x.json"]):
        done = python(here, "-m", "launchscope", *words)
        assert "Traceback" not in done.err
        assert script not in words or done.out.strip() == json.__file__
    assert set(marks.read_text().split()) <= ({"runpy"} if sys.version_info < (3, 11) else set())
