"""A failure is put down to the script only where launchscope has no part in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.runner.children import SMALL_STEP, launchscope

pytestmark = pytest.mark.child

LOOP = "for i in range(30): step()\nprint('all done')\n"
# Breaks a function of launchscope once the steps run, as a bug in it would.
BREAK = "sys.modules['launchscope.runner.child.{module}'].{name} = None\n"
IN_A_MODE = "torch._C._len_torch_dispatch_stack()"


@dataclass(frozen=True)
class Case:
    """`says` is all in what we print, `never` is not."""

    source: str
    code: int
    says: tuple[str, ...]
    never: str = "run it without launchscope first"
    options: tuple[str, ...] = ("--full",)


BUG = "this is a bug in launchscope: please report it, with the output of the same command with -v"
CASES = {
    "its own failure": Case(
        SMALL_STEP + "raise ValueError('mine')",
        1,
        ("exit code 1 (ValueError) before it was measured", "run it without launchscope first"),
        never="bug",
    ),
    "a failing search": Case(
        SMALL_STEP + BREAK.format(module="steps.step_calls", name="user_line") + LOOP,
        3,
        ("failed in the script's process with TypeError (step_calls.py:", BUG, "all done"),
    ),
    "raises under a dispatch mode": Case(
        SMALL_STEP
        + f"def check(*_):\n    if {IN_A_MODE}: raise RuntimeError('no modes, please')\n"
        + "net.register_forward_hook(check)\n"
        + LOOP,
        1,
        ("(RuntimeError)", "while launchscope looked into its steps", "if it does not, " + BUG),
    ),
    "a second run fails": Case(
        SMALL_STEP
        + "if os.path.exists('mark'): raise RuntimeError('left behind')\n"
        + "open('mark', 'w').close()\nfor i in range(7): step()\n",
        1,
        ("although an earlier run went well", "--max-runs 1"),
        options=(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_says_whose_failure_it_is(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    said = launchscope(tmp_path, case.source, *case.options)
    printed = said.out + said.err
    assert said.code == case.code, printed
    for text in case.says:
        assert text in " ".join(printed.split()), printed
    assert case.never not in printed
