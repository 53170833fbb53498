"""The folder of a launchscope that was killed goes with the next start; nobody else's does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchscope.workflows.temporary import TemporaryFolder
from tests.runner.children import ENVIRONMENT, SMALL_STEP, launchscope
from tests.runner.test_signals import await_file, processes_in

WITH_WORKERS = (
    SMALL_STEP
    + """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 10000
    def __getitem__(self, index): time.sleep(0.01); return torch.randn(4)
for i, batch in enumerate(torch.utils.data.DataLoader(Data(), num_workers=2)):
    step()
    if i == 2: open("now", "w").close()
"""
)


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files of this process and of its children. Its path is short: sockets
    of data loaders lie in it, whose names have a limit."""
    with tempfile.TemporaryDirectory() as path:
        monkeypatch.setattr("tempfile.tempdir", path)
        monkeypatch.setitem(ENVIRONMENT, "TMPDIR", path)
        yield Path(path)


@pytest.mark.child
def test_a_killed_launchscope_leaves_no_process_and_after_the_next_start_no_folder(
    folders: Path, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(WITH_WORKERS)
    with subprocess.Popen(
        [sys.executable, "-m", "launchscope", "profile", "--inspect", "1500", "script.py"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            await_file(tmp_path / "now")
        finally:
            process.send_signal(signal.SIGKILL)
    assert processes_in(process.pid) == []
    abandoned = list(folders.glob("launchscope-*"))
    assert len(abandoned) == 1
    other = TemporaryFolder()
    saved = folders / "launchscope-saved"
    saved.mkdir()
    assert launchscope(tmp_path / "next", SMALL_STEP + "for _ in range(50): step()\n").code == 0
    assert sorted(folders.glob("launchscope-*")) == sorted([other.path, saved])
    other.remove()
    assert list(folders.glob("launchscope-*")) == [saved]


def test_a_link_is_not_followed(folders: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "owner.lock").touch()
    (folders / "launchscope-link").symlink_to(theirs)
    inside = folders / "launchscope-inside"
    inside.mkdir()
    os.symlink(theirs / "owner.lock", inside / "owner.lock")
    TemporaryFolder().remove()
    assert theirs.exists()
    assert inside.exists()


def test_a_folder_of_somebody_else_with_our_prefix_stays(folders: Path) -> None:
    """A saved copy, a folder with a lock of its own, and one whose name we never make."""
    ours = TemporaryFolder()
    copy = folders / "launchscope-copied_1"
    shutil.copytree(ours.path, copy)
    named = folders / "launchscope-results"
    for folder in (folders / "launchscope-abcdefgh", named):
        folder.mkdir()
        (folder / "owner.lock").touch()
    (named / "owner.lock").write_text(named.name)
    abandoned = folders / "launchscope-abandond"
    shutil.copytree(ours.path, abandoned)
    (abandoned / "owner.lock").write_text(abandoned.name)
    before = set(folders.iterdir())
    TemporaryFolder().remove()
    assert before - set(folders.iterdir()) == {abandoned}
    ours.remove()
