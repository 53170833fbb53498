"""Files as streams of blocks: gzip in all its states, and what is no gzip."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from launchscope.errors import InputError
from launchscope.parser import decompress as module
from launchscope.parser.decompress import beginning, decompress

CONTENT = random.Random(7).randbytes(300_000) + b"a" * 9_000_000


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "file"
    path.write_bytes(content)
    return path


def read(path: Path) -> tuple[bytes, list[str]]:
    repairs: list[str] = []
    return b"".join(decompress(path, repairs)), repairs


@pytest.mark.parametrize("level", [1, 6, 9])
def test_gzip_and_plain_give_the_same_bytes(tmp_path: Path, level: int) -> None:
    assert read(written(tmp_path, CONTENT)) == (CONTENT, [])
    assert read(written(tmp_path, gzip.compress(CONTENT, level))) == (CONTENT, [])


def test_several_gzip_streams_in_a_row_are_one_file(tmp_path: Path) -> None:
    parts = [CONTENT[:1000], b"", CONTENT[1000:200_000], CONTENT[200_000:]]
    packed = b"".join(map(gzip.compress, parts)) + b"\0" * 512
    assert read(written(tmp_path, packed)) == (CONTENT, [])


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.95])
def test_a_gzip_stream_that_ends_early_is_read_up_to_there(tmp_path: Path, kept: float) -> None:
    packed = gzip.compress(CONTENT)
    found, repairs = read(written(tmp_path, packed[: int(len(packed) * kept)]))
    assert CONTENT.startswith(found)
    assert repairs == ["the gzip stream ends early"]


def test_a_gzip_stream_with_a_wrong_checksum_is_reported(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(CONTENT))
    packed[-6] ^= 0xFF
    _, repairs = read(written(tmp_path, bytes(packed)))
    assert repairs == ["the gzip stream ends early"]


def test_gzip_garbage_is_no_crash(tmp_path: Path) -> None:
    found, repairs = read(written(tmp_path, b"\x1f\x8b" + b"nonsense" * 50))
    assert (found, repairs) == (b"", ["the gzip stream ends early"])


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALWAYS_ALLOWED", 5_000_000)
    bomb = written(tmp_path, gzip.compress(b"\0" * 50_000_000))
    with pytest.raises(InputError, match="grows more than 200 times"):
        read(bomb)


def test_the_beginning_of_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert beginning(tmp_path / "none") == b""
    assert beginning(tmp_path) == b""
    head = beginning(written(tmp_path, gzip.compress(CONTENT)), 1000)
    assert 900 < len(head) <= 1000
    assert CONTENT.startswith(head)


def test_without_isal_the_standard_library_reads_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zlib

    monkeypatch.setattr(module, "inflate", zlib)
    packed = gzip.compress(CONTENT)
    assert read(written(tmp_path, packed)) == (CONTENT, [])
    assert read(written(tmp_path, packed[:-20_000]))[1] == ["the gzip stream ends early"]


@pytest.mark.parametrize(("rest", "reported"), [(bytes(900_000), False), (b"more", True)])
def test_what_follows_a_gzip_stream_is_no_early_end(
    tmp_path: Path, rest: bytes, reported: bool
) -> None:
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(b"content") + rest)
    repairs: list[str] = []
    assert b"".join(decompress(path, repairs)) == b"content"
    assert repairs == (["the bytes after the gzip stream are ignored"] if reported else [])
