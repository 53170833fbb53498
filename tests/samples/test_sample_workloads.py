"""The sample workloads run by themselves and know nothing of launchscope."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from launchscope.parser import read_profile
from tests.processes import WITHOUT_GPU, launchscope, python
from tests.samples.sizes import SMALLER

SAMPLES = Path(__file__).parents[2] / "sample_workloads"
SCRIPTS = sorted(SAMPLES.glob("*.py"))


@pytest.mark.child
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_runs_to_its_end_on_the_cpu(script: Path, tmp_path: Path) -> None:
    words = ("-W", "error::DeprecationWarning:__main__", str(script), "--steps", "3")
    more = SMALLER.get(script.stem, ())
    result = python(tmp_path, *words, *more, environ=WITHOUT_GPU)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("done after 3 ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_it_is_a_short_plain_script(script: Path) -> None:
    text = script.read_text()
    assert "launchscope" not in text
    assert 20 <= len(text.splitlines()) <= 80
    assert text.startswith('"""')


@pytest.mark.real_start
@pytest.mark.child
def test_where_torch_and_the_script_lie_changes_nothing(tmp_path: Path) -> None:
    built, folder = tmp_path / "a b'ü", tmp_path / "site-packages"
    (built / "other").mkdir(parents=True)
    folder.mkdir()
    (built / "torch").symlink_to(Path(torch.__file__).parent)
    line = "loss.backward()"
    source = (SAMPLES / "small_mlp.py").read_text().replace(line, f"loss.item(); {line}")
    path = f"import sys; sys.path.insert(0, {f'{built}/other/..'!r}); "
    (folder / "train.py").write_text(path + source)
    words = ("--warmup", "5", "-o", "p.json", str(folder / "train.py"), "--steps", "60")
    done = launchscope(tmp_path, "profile", *words, environ=WITHOUT_GPU)
    assert done.returncode == 0, done.stderr
    profile = read_profile(tmp_path / "p.json")
    assert profile.value("device_ops_per_step") == 64
    (blocker,) = profile.blockers
    assert blocker.where is not None
    assert "loss.item()" in source.splitlines()[blocker.where.line - 1]
    assert blocker.library is None
