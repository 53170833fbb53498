"""Mutated trace files, and what has to hold for every one of them."""

from __future__ import annotations

import gzip
import random
import sqlite3
import tempfile
import warnings
from contextlib import closing
from functools import cache
from pathlib import Path

from launchscope.analysis import profile_of_trace
from launchscope.errors import InputError
from launchscope.parser import read_trace
from launchscope.parser.sources import Reading
from launchscope.rules import advise
from tests.builders import trace
from tests.kineto_text import LAYOUTS
from tests.nsys_builder import nsys

__all__ = ["bases", "holds", "mutated"]

_TOKENS = (
    b"N/A", b"NaN", b"-1", b"1e400", b"18446744073709551616", b"9223372036854775807", b"null",
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\xff", b"\0", b"\n", b"true", b"-", b".",
    b'"ph": "X"', b'"cat": "kernel"', b'"dur": -5', b'"ts": 1e18', b'"correlation": -7',
    b"7" * 400, b"7" * 400 + b".5",
    b'"\\ud800"', b'"args": []', b'"name": 5', b"1.7976931348623157e308", b"\n  },\n  {",
)  # fmt: skip


def _kineto() -> dict[str, object]:
    built = trace()
    for index in range(4):
        built.step().op("aten::add").launch(name=f"k{index % 2}").memcpy(blocking=True).sync()
        built.launch().graph([("a", 2), ("b", 3)]).memset().orphan().end().data(5)
    return {**built.document(), "distributedInfo": {"rank": 3, "world_size": 8}}


@cache
def bases() -> dict[str, bytes]:
    """One sound file of each kind."""
    made = {name: layout(_kineto()).encode() for name, layout in LAYOUTS.items()}
    made["gzip"] = gzip.compress(made["kineto"])
    built = nsys()
    for _ in range(4):
        built.range("step").launch().memcpy().sync().graph([1, 2], nodes=True)
        built.graph([3], nodes=False).memset().end()
    with tempfile.TemporaryDirectory() as folder:
        path = built.write(Path(folder) / "base.sqlite")
        made["nsys"] = path.read_bytes()
        kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
        for kind, statements in {
            "nsys with a log": ("PRAGMA journal_mode=WAL",),
            "nsys with a view": (
                f"ALTER TABLE {kernels} RENAME TO kernels",
                f"CREATE VIEW {kernels} AS SELECT * FROM kernels",
            ),
        }.items():
            with closing(sqlite3.connect(path)) as connection:
                for statement in statements:
                    connection.execute(statement)
            made[kind] = path.read_bytes()
    return made


def mutated(content: bytes, chance: random.Random) -> bytes:
    """The file with one to eight things done to it."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        if not data:
            break
        at = chance.randrange(len(data))
        length = chance.choice((1, 2, 8, 64, 700))
        what = chance.randrange(8)
        if what == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            del data[at : at + length]
        elif what == 2:
            del data[at:]
        elif what == 3:
            data[at:at] = data[at : at + length]
        elif what == 4:
            data[at:at] = chance.choice(_TOKENS)
        elif what == 5:
            token = chance.choice(_TOKENS)
            data[at : at + len(token)] = token
        elif what == 6:  # a second document, gzip stream or database
            data += content
        else:
            data[at : at + length] = chance.randbytes(min(length, len(data) - at))
    return bytes(data)


def holds(path: Path) -> None:
    """Reads the file: a Profile whose figures make sense, or an InputError with a sentence.

    Anything else, a warning or a file left beside it included, comes out as an exception.
    """
    beside = set(path.parent.iterdir())
    try:
        _reads(path)
    finally:
        assert set(path.parent.iterdir()) == beside


def _reads(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            read = read_trace(path, Reading(op_names=False, memory_bytes=200_000_000))
            profiles = [
                advise(profile_of_trace(read, path.name)),
                advise(profile_of_trace(read, path.name, step_from="none")),
            ]
        except InputError as refused:
            if not str(refused):
                raise AssertionError("refused without a reason") from refused
            return
    for profile in profiles:
        for key, metric in profile.metrics.items():
            value = metric.value
            if value is None:
                continue
            assert value == value, key  # no NaN
            assert abs(value) < 1e16, (key, value)
            if key.endswith("_per_step") or key in ("gpu_busy_ms", "iteration_busy_ms"):
                assert value >= 0, (key, value)
        busy, whole = profile.value("iteration_busy_ms"), profile.value("iteration_ms")
        if profile.step is not None and profile.step.boundary == "none" and busy and whole:
            assert busy <= whole * (1 + 1e-9), (busy, whole)
        assert profile.verdict is not None
