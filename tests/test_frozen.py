"""Our frozen dataclasses are those of the standard library, method by method."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec
import pytest

from launchscope import frozen


def _class(decorator: Any) -> type:
    class Value:
        """A value."""

        name: str
        size: int = 3
        parts: list[int] = dataclasses.field(default_factory=list)
        note: str | None = None

        @property
        def double(self) -> int:
            return 2 * self.size

    return decorator(Value)  # type: ignore[no-any-return]


OURS: Any = _class(frozen.dataclass(frozen=True))
THEIRS: Any = _class(dataclasses.dataclass(frozen=True))
BY_IDENTITY: Any = _class(frozen.dataclass(frozen=True, eq=False))


@frozen.dataclass(frozen=True)
class Point:
    x: float
    y: float = 0.0

    @cached_property
    def length(self) -> float:
        return float(abs(self.x + self.y * 1j))


def _outcome(do: Callable[[Any], Any], kind: Any) -> Any:
    """What is computed, or the type of the error."""
    try:
        found = do(kind)
    except Exception as error:
        return type(error)
    return vars(found) if isinstance(found, kind) else found


@pytest.mark.parametrize(
    "do",
    [
        lambda k: k("a"),
        lambda k: k("a", 1, [2], "b"),
        lambda k: k("a", note="b", size=2),
        lambda k: k(),
        lambda k: k("a", name="b"),
        lambda k: k("a", 1, [], None, 5),
        lambda k: k("a", color=1),
        lambda k: repr(k("a", parts=[1])),
        lambda k: k("a") == k("a"),
        lambda k: k("a") == k("b"),
        lambda k: k("a") != ("a", 3, [], None),
        lambda k: k("a").__eq__(3),
        lambda k: hash(k("a", parts=(1,))) == hash(k("a", parts=(1,))),
        lambda k: hash(k("a")),  # a list has none
        lambda k: setattr(k("a"), "name", "b"),
        lambda k: delattr(k("a"), "name"),
        lambda k: dataclasses.replace(k("a"), size=9),
        lambda k: dataclasses.replace(k("a"), color=9),
        lambda k: dataclasses.asdict(k("a", parts=[1])),
        lambda k: dataclasses.astuple(k("a", parts=[1])),
        lambda k: [field.name for field in dataclasses.fields(k)],
        lambda k: dataclasses.is_dataclass(k),
        lambda k: k.__match_args__,
        lambda k: k("a", 4).double,
        lambda k: k.__doc__,
        lambda k: copy.copy(k("a", 1)),
        lambda k: copy.deepcopy(k("a", parts=[1])),
        lambda k: list(vars(k(note="b", name="a"))),
        lambda k: k("a").parts is k("a").parts,
    ],
)
def test_it_does_what_the_standard_library_does(do: Callable[[Any], Any]) -> None:
    assert _outcome(do, OURS) == _outcome(do, THEIRS)


def test_values_of_different_classes_are_different() -> None:
    assert OURS("a") != THEIRS("a")


def test_without_eq_a_value_is_equal_to_itself_alone() -> None:
    value = BY_IDENTITY("a")
    assert value == value
    assert value != BY_IDENTITY("a")
    assert len({value, BY_IDENTITY("a")}) == 2


def test_a_value_survives_a_pickle_and_json() -> None:
    point = Point(1.5)
    assert pickle.loads(pickle.dumps(point)) == point
    assert msgspec.json.decode(msgspec.json.encode(point), type=Point) == point


def test_neither_the_order_of_json_nor_what_a_value_caches_makes_it_another_one() -> None:
    point, decoded = Point(3.0, 4.0), msgspec.json.decode('{"y": 4.0, "x": 3.0}', type=Point)
    assert point.length == 5.0
    assert point == decoded
    assert hash(point) == hash(decoded)
    assert repr(point) == repr(decoded)


def test_a_pattern_takes_it_apart() -> None:
    match Point(1.0, 2.0):
        case Point(x, y):
            assert (x, y) == (1.0, 2.0)
        case _:
            pytest.fail("it did not match")
