"""A forked process is what Python would have started, only sooner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.forkserver import Popen

pytestmark = [
    pytest.mark.child,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux"),
]

DESCRIBES = """
import json, os, sys, tempfile, __main__
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "folder": os.getcwd(), "parent": os.getppid(),
    "group": os.getpgid(0), "session": os.getsid(0), "temporary": tempfile.gettempdir(),
    "environ": dict(os.environ), "name": __name__, "file": getattr(__main__, "__file__", None),
    "flags": list(sys.flags), "warnings": sys.warnoptions, "encoding": sys.stdout.encoding,
    "buffering": [sys.stdout.line_buffering, sys.stdout.write_through, sys.stderr.line_buffering],
    "ignored": [n for n in range(1, 32) if __import__("signal").getsignal(n) == 1],
    "modules": sorted({m.partition(".")[0] for m in sys.modules}),
}))
"""


def run(*arguments: str, forked: bool = True, **more: Any) -> tuple[int, str, str]:
    server, Popen.server = Popen.server, Popen.server if forked else None
    try:
        with subprocess.Popen(
            [sys.executable, *arguments],
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more},
        ) as process:
            out, err = process.communicate(timeout=60)
    finally:
        Popen.server = server
    assert process.forked is forked  # type: ignore[attr-defined]
    return process.returncode, out, err


@pytest.mark.parametrize(
    "arguments",
    [("-c", DESCRIBES, "a", "-b"), ("script.py", "a"), ("-m", "script", "a"),
     ("-W", "error::DeprecationWarning:__main__", "script.py"), ("-", "a")],
    ids=["-c", "script", "-m", "-W", "-"],
)  # fmt: skip
def test_a_fork_has_the_surroundings_of_a_process_that_python_starts(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "script.py").write_text(DESCRIBES)
    (tmp_path / "temporary").mkdir()
    environ = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(tmp_path / "temporary"),
        "ONLY_HERE": "1",
        "TORCHELASTIC_RUN_ID": "1",  # of torch's launcher: read when it is needed
        "PYTHONPATH": f"{tmp_path}/first:{Path(pytest.__file__).parents[1]}",
    }
    described = []
    for forked in (True, False):
        with (tmp_path / "script.py").open() as stdin:
            done = run(*arguments, forked=forked, cwd=tmp_path, env=environ, stdin=stdin)
        described.append(json.loads(done[1]))
    ours, pythons = described
    for one in (ours, pythons):
        del one["flags"]
        one["modules"] = [m for m in one["modules"] if m in ("torch", "numpy", "rich")]
    assert ours == pythons
    assert ours["temporary"] == str(tmp_path / "temporary")
    assert ours["parent"] == os.getpid()


def test_torch_is_not_imported_until_the_code_imports_it() -> None:
    code = """
    import sys
    class Watch:
        def find_spec(self, name, path=None, target=None):
            if name in ("numpy", "torch"):
                print("imports", name, "torch" in sys.modules)
    sys.meta_path.insert(0, Watch())
    import torch
    print(torch.ones(2).sum().item(), sys.modules["torch"].nn.__spec__.origin == torch.nn.__file__)
    """
    _, out, err = run("-c", textwrap.dedent(code))
    assert out == "imports torch False\n2.0 True\n", err


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "import sys; sys.exit(7)",
        "def f():\n    1/0\nf()",
        "raise KeyboardInterrupt",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import atexit\natexit.register(print, 'bye')\nfile = open('left', 'w')\nfile.write('x')",
        "print(input())",
    ],
)
def test_a_fork_ends_as_python_does(tmp_path: Path, code: str) -> None:
    (tmp_path / "script.py").write_text(code)
    (tmp_path / "typed").write_text("typed\n")
    ends = []
    for forked in (True, False):
        with (tmp_path / "typed").open() as stdin:
            ends.append(run("script.py", forked=forked, cwd=tmp_path, stdin=stdin))
    assert ends[0] == ends[1]
    if "left" in code:
        assert (tmp_path / "left").read_text() == "x"


def test_a_session_of_its_own_and_a_signal_to_its_group() -> None:
    code = "import os, time; print(os.getsid(0) == os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(timeout=30) == -signal.SIGTERM
    assert process.forked  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "start",
    [
        {"args": [sys.executable, "-S", "-c", "pass"]},
        {"args": [sys.executable, "-c", "pass"], "preexec_fn": os.getpid},
        {"args": [sys.executable, "-c", "pass"], "env": {**os.environ, "OMP_NUM_THREADS": "7"}},
        {"args": ["true"]},
    ],
)
def test_what_a_fork_cannot_give_is_a_real_start(start: dict[str, Any]) -> None:
    with subprocess.Popen(**start) as process:
        pass
    assert process.returncode == 0
    assert not process.forked  # type: ignore[attr-defined]
