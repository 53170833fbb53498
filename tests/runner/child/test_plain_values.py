"""Objects of the script, found without asking its code."""

from __future__ import annotations

from launchscope.runner.child.plain_values import objects_below


def test_objects_of_a_class_and_of_all_below_it_are_found_without_asking_their_classes() -> None:
    class Closed(type):
        def __subclasses__(cls) -> list[type]:
            raise AssertionError("asked")

        def __instancecheck__(cls, instance: object) -> bool:
            raise AssertionError("asked")

        __subclasscheck__ = __instancecheck__

        def __eq__(cls, other: object) -> bool:
            raise AssertionError("asked")

        def __hash__(cls) -> int:
            raise AssertionError("asked")

    class Base:
        pass

    class Left(Base, metaclass=Closed):
        pass

    class Right(Base):
        pass

    class Both(Left, Right):
        pass

    kept = [Base(), Left(), Right(), Both(), object(), []]
    found = objects_below(Base)
    assert len(found) == 4
    assert all(any(one is other for other in found) for one in kept[:4])
