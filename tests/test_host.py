"""Files that are written whole, or not at all."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest

from launchscope.host import Blocks, free_memory, require_room_beside, write_whole


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")
    write_whole(file, b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
        ("report.json", b"new")
    ]


def test_content_in_blocks_is_made_again_where_the_file_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, content = tmp_path / "trace", Blocks(lambda: iter((b"first ", b"second")))
    write_whole(file, content)
    assert file.read_bytes() == b"first second"

    def busy(neighbor: Path, target: Path) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    file.write_bytes(b"old")
    monkeypatch.setattr(Path, "replace", busy)
    write_whole(file, content)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
        ("trace", b"first second")
    ]


def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_part(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_whole(file, bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_link_stays_and_its_file_is_written_with_the_mode_it_had(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    file, link, dangling = (tmp_path / n for n in ("real/file", "link", "dangling"))
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to("real/file")
    dangling.symlink_to("real/new")
    for path in (link, dangling):
        write_whole(path, b"new")
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert (file.read_text(), (tmp_path / "real/new").read_text()) == ("new", "new")
    assert file.stat().st_mode & 0o7777 == 0o640
    assert sorted(p.name for p in (tmp_path / "real").iterdir()) == ["file", "new"]


def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o7777 == 0o640


def test_a_link_planted_under_a_guessed_name_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    for number in {os.getpid(), os.getppid()}:
        (tmp_path / f".report.{number}.tmp").symlink_to(victim)
    write_whole(tmp_path / "report", b"new")
    require_room_beside(tmp_path / "report")
    assert victim.read_text() == "kept"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe", b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    end, other_end = os.pipe()
    write_whole(Path(f"/dev/fd/{other_end}"), b"too")
    assert os.read(end, 100) == b"too"
    os.close(end)
    os.close(other_end)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write in any folder")
def test_a_file_in_a_folder_that_is_not_ours_is_written_in_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    tmp_path.chmod(0o500)
    try:
        require_room_beside(tmp_path / "file")
        write_whole(tmp_path / "file", b"new")
        with pytest.raises(OSError, match="denied"):
            require_room_beside(tmp_path / "other")
    finally:
        tmp_path.chmod(0o700)
    assert (tmp_path / "file").read_text() == "new"


def test_a_file_keeps_its_permissions_but_nothing_that_runs_it_as_somebody_else(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o6754)
    write_whole(file, b"new")
    assert file.stat().st_mode & 0o7777 == 0o754


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_keeps_its_owner_and_group(tmp_path: Path) -> None:
    file = tmp_path / "given"
    file.write_text("old")
    os.chown(file, 1234, 1)
    write_whole(file, b"new")
    assert (file.stat().st_uid, file.stat().st_gid, file.read_text()) == (1234, 1, "new")


def test_free_memory_is_known_where_the_system_does_not_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(path: Path, *args: object, **kwargs: object) -> str:
        raise OSError

    assert free_memory() > 1 << 20
    monkeypatch.setattr(Path, "read_text", unreadable)
    assert free_memory() > 1 << 20
