"""The commands of the docs that gate a script in CI, run as printed in a small repository."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.processes import launchscope
from tests.regressions import SCRIPT
from tests.workflows.repositories import commit, git, repository, write

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/ci.md")
_FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.M | re.S)
_CHECK = re.compile(r"^\s*(?:- )?(?:run: )?launchscope (check [^$\n]*)$", re.M)
_ARGUMENTS = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
steps = parser.parse_args().steps
import torch
torch.set_num_threads(1)
"""


def recipes() -> list[list[str]]:
    """The words of each `launchscope check`, without those that take variables of a workflow."""
    texts = ("\n".join(_FENCED.findall((ROOT / page).read_text("utf-8"))) for page in PAGES)
    found = (shlex.split(line, comments=True) for text in texts for line in _CHECK.findall(text))
    return [list(words) for words in dict.fromkeys(map(tuple, found))]


def one_of_each() -> list[list[str]]:
    """Of recipes that differ only in their outputs, time limit and the script's own options, the
    longest."""
    longest: dict[str, list[str]] = {}
    for words in recipes():
        key = re.sub(r" (?:-o|--timeout|--steps) \S+", "", " ".join(words))
        longest[key] = max(longest.get(key, []), words, key=len)
    return list(longest.values())


def script(blocks: int) -> str:
    assert SCRIPT.count("range(400)") == SCRIPT.count("range(4)") == 1
    return _ARGUMENTS + SCRIPT.replace("range(400)", "range(steps)").replace(
        "range(4)", f"range({blocks})"
    )


def branch(folder: Path, source: str) -> Path:
    """A repository whose commit before is that of `main`, with other sources and the same work."""
    top = repository(folder, {"train.py": source})
    git(top, "checkout", "-q", "-b", "change")
    commit(top, {"train.py": f"# A comment.\n{source}"})
    return top


def assert_all_pass_and_a_regression_fails(
    folder: Path, found: list[list[str]], blocks: int = 4
) -> None:
    """Every recipe, in the order of the pages; then one against a baseline and one against the
    commit before, after an operation was added to the step. `blocks`: the size of the model."""
    source = script(blocks)
    top = branch(folder, source)
    assert len(found) >= 3, found
    for words in found:
        done = launchscope(top, *words, timeout=900)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        for at, word in enumerate(words):
            assert word != "-o" or (top / words[at + 1]).stat().st_size, words
    worse = source.replace("    out = model(x)\n", "    out = model(x) * 1.5\n")
    write(top, {"train.py": worse})
    gates = [words for words in found if "--update-baseline" not in words]
    for words in (gates[0], next(words for words in gates if "--against" in words)):
        done = launchscope(top, *words, timeout=900)
        assert done.returncode == 1, (words, done.stdout, done.stderr)
        assert "train.py:" in done.stdout, done.stdout
