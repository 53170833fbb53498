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
    packed = b"".join(map(gzip.compress, parts))
    assert read(written(tmp_path, packed)) == (CONTENT, [])


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.95])
def test_a_gzip_stream_that_ends_early_is_read_up_to_there(tmp_path: Path, kept: float) -> None:
    packed = gzip.compress(CONTENT)
    found, repairs = read(written(tmp_path, packed[: int(len(packed) * kept)]))
    assert CONTENT.startswith(found)
    assert repairs == ["the gzip stream ends early"]


def test_a_wrong_checksum_is_damage(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(CONTENT))
    packed[-6] ^= 0xFF
    found, repairs = read(written(tmp_path, bytes(packed)))
    assert CONTENT.startswith(found)
    assert repairs == ["the gzip stream is damaged: read up to there"]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_small_blocks_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    content = CONTENT[:2000] + b"a" * 3000
    assert read(written(tmp_path, gzip.compress(content))) == (content, [])


@pytest.mark.parametrize("head", [b"\x1f\x8b", b"\x1f\x8b\x08\x08"])
def test_gzip_garbage_is_no_crash(tmp_path: Path, head: bytes) -> None:
    found, repairs = read(written(tmp_path, head + b"nonsense" * 50))
    assert found == b""
    assert len(repairs) == 1


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


def test_bytes_after_a_gzip_stream_are_reported(tmp_path: Path) -> None:
    found, repairs = read(written(tmp_path, gzip.compress(b"content") + b"more"))
    assert found == b"content"
    assert len(repairs) == 1
