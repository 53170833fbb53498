"""Files that are written whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.host import free_memory, write_whole


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text("old")
    write_whole(file, b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [
        ("report.json", b"new")
    ]


def test_a_write_that_fails_keeps_the_old_file_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:1])
        raise OSError(28, "No space left on device")

    file = tmp_path / "report.json"
    file.write_text("old")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, b"new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_free_memory_is_known_where_the_system_does_not_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(path: Path, *args: object, **kwargs: object) -> str:
        raise OSError

    assert free_memory() > 1 << 20
    monkeypatch.setattr(Path, "read_text", unreadable)
    assert free_memory() > 1 << 20
