"""What changed is named with counts and with the line at which it appeared."""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace

from launchscope.gate.changes import changes
from launchscope.model import (
    BetweenSteps,
    Change,
    KernelRow,
    OpRow,
    PeriodicWork,
    Profile,
    SourceLine,
)
from launchscope.report import reporter_named
from tests.gate.profiles import OPS, checked, gpu, item, rehearsal, with_between
from tests.rules.profiles import library_blocker


def moved(ops: tuple[OpRow, ...], by: int, beyond: int = 0) -> tuple[OpRow, ...]:
    """The same ops some lines further down, from a line on."""

    def place(where: SourceLine) -> SourceLine:
        return dataclasses.replace(where, line=where.line + (by if where.line > beyond else 0))

    return tuple(replace(op, where=op.where and place(op.where)) for op in ops)


def test_lines_that_only_moved_are_no_change() -> None:
    assert changes(rehearsal(moved(OPS, 7)), rehearsal()) == ()


def test_an_inserted_line_is_found_although_all_lines_below_it_moved() -> None:
    new = OpRow("aten.relu", 1, SourceLine("train.py", 29))
    (found,) = changes(rehearsal((new, *moved(OPS, 1, beyond=28))), rehearsal())
    assert found == Change("op", "aten.relu", 1, 2, (SourceLine("train.py", 29),))


def test_a_new_op_in_forward_and_backward_shows_the_forward_line_first() -> None:
    forward, backward = SourceLine("train.py", 29), SourceLine("train.py", 31)
    first, second = OpRow("aten.mul", 1, forward), OpRow("aten.mul", 4, backward)
    ops = (*OPS[:2], first, *moved(OPS[2:3], 1), second, *moved(OPS[3:], 1))
    (found,) = changes(rehearsal(ops), rehearsal())
    assert found.where == (forward, backward)


def test_a_removed_op_shows_the_line_of_the_baseline() -> None:
    (found,) = changes(rehearsal(OPS[:1] + OPS[2:]), rehearsal())
    assert found == Change("op", "aten.relu", 1, 0, (SourceLine("train.py", 28),))


def test_kernels_are_compared_by_name_and_count() -> None:
    before = gpu()
    first, second, third = before.kernels
    kernels = (
        replace(first, count=49),
        third,
        KernelRow("fresh", 2, 1.5, SourceLine("model.py", 9)),
    )
    found = changes(replace(before, kernels=kernels), before)
    assert [(c.name, c.before, c.after, c.where) for c in found] == [
        ("fresh", 0, 2, (SourceLine("model.py", 9),)),
        (first.name, 48, 49, (SourceLine("model.py", 61),)),
        (second.name, 12, 0, ()),
    ]


def test_a_kind_that_one_side_lacks_is_not_a_change() -> None:
    assert changes(gpu(), replace(gpu(), ops=(), kernels=())) == ()


def test_what_appeared_between_steps_is_named_apart_from_the_step() -> None:
    where = SourceLine("train.py", 33)
    plain = BetweenSteps(10, ops=(OpRow("aten.add_", 1, SourceLine("train.py", 32)),))
    more = replace(
        plain, ops=(*plain.ops, OpRow("aten.lerp_", 4, where)), blockers=(item(34, "x.item()"),)
    )
    before, after = (with_between(rehearsal(), steps, between_ops=1) for steps in (plain, more))
    assert changes(before, before) == ()
    assert changes(after, before) == (
        Change("blocker", item().op, 0, 1, (SourceLine("train.py", 34),), between=True),
        Change("op", "aten.lerp_", 0, 4, (where,), between=True),
    )


def test_kernels_between_steps_are_compared_where_both_were_traced() -> None:
    plain = gpu()
    more = with_between(gpu(), BetweenSteps(10, kernels=(KernelRow("ema", 2, 3.0),)))
    assert changes(more, plain) == (Change("kernel", "ema", 0, 2, (), between=True),)
    assert changes(more, replace(plain, between=None)) == ()


def test_periodic_work_that_appeared_is_named_with_its_lines() -> None:
    def every(period: int | None, line: int, metric: str = "between_syncs") -> PeriodicWork:
        return PeriodicWork(3, 10, period, {metric: 1}, (SourceLine("train.py", line),))

    def looped(*periodic: PeriodicWork) -> Profile:
        return with_between(rehearsal(), BetweenSteps(10, periodic=periodic), between_syncs=1)

    plain, logged = looped(every(3, 40)), looped(every(3, 41), every(2, 43))
    where = (SourceLine("train.py", 43),)
    assert changes(logged, plain) == (
        Change("work", "between_syncs", 1 / 3, 1 / 3 + 1 / 2, where, between=True),
    )
    assert [change.appeared for change in changes(plain, logged)] == [False]
    more = replace(logged, metrics=with_between(logged, BetweenSteps(), between_syncs=2).metrics)
    # What has no known period, or was not counted, is no change.
    assert changes(looped(every(3, 40), every(None, 42)), plain) == ()
    assert changes(looped(every(3, 40), every(2, 42, "between_launches")), plain) == ()
    for name in ("junit", "github", "sarif", "markdown", "terminal"):
        text = str(reporter_named(name).render(checked(more, plain)))
        assert "synchronizations between steps" in text
        assert "43" in text


def test_a_new_blocker_in_a_library_shows_both_lines() -> None:
    blocker = library_blocker()
    assert blocker.library is not None
    (found,) = changes(rehearsal(blockers=(blocker,)), rehearsal())
    assert found.where == (blocker.where, blocker.library.where)


def test_a_baseline_that_does_not_know_the_librarys_lines_has_the_same_blockers() -> None:
    lines = [replace(library_blocker(), count=2), replace(library_blocker(), library=None)]
    (known,) = (replace(lines[1], count=3),)
    assert changes(rehearsal(blockers=lines), rehearsal(blockers=[known])) == ()
