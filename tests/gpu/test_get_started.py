"""The scripts of docs/get-started.md run as they stand and give the results of eager."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.processes import python

PAGE = (Path(__file__).parents[2] / "docs" / "get-started.md").read_text(encoding="utf-8")
# By heading; an example is in the section right below its heading.
EXAMPLES = dict(re.findall(r"^### ([^\n]+)\n(?:(?!^#).)*?```python\n(.*?)```", PAGE, re.M | re.S))
TITLES = ["A training step", "Several shapes"]


@pytest.mark.parametrize("title", TITLES)
def test_an_example_is_a_whole_script_that_checks_itself(title: str) -> None:
    body = ast.parse(EXAMPLES[title]).body
    assert isinstance(body[0], ast.Import)
    imported = {a.name for node in body if isinstance(node, ast.Import) for a in node.names}
    imported |= {node.module or "" for node in body if isinstance(node, ast.ImportFrom)}
    assert imported <= {"torch", "torch.nn.functional"}
    assert "torch.testing.assert_close(graphed, eager" in EXAMPLES[title]


@pytest.mark.gpu
@pytest.mark.parametrize("title", TITLES)
def test_an_example_gives_the_results_of_eager(title: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[title], encoding="utf-8")
    done = python(tmp_path, str(script))
    assert done.returncode == 0, done.stderr
    assert "largest difference from eager: " in done.stdout
