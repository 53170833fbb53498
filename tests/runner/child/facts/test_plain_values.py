"""Objects of the script by their class."""

from __future__ import annotations

from launchscope.runner.child.facts.plain_values import objects_below


def test_objects_of_a_class_and_of_all_below_it_are_found() -> None:
    class Base:
        pass

    class Left(Base):
        pass

    class Right(Base):
        pass

    class Both(Left, Right):
        pass

    kept = [Base(), Left(), Right(), Both(), object(), []]
    found = objects_below(Base)
    assert sorted(map(id, found)) == sorted(map(id, kept[:4]))
