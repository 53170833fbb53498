"""A region sorted, and the changes of its text that go with that."""

from __future__ import annotations

from dataclasses import dataclass, field

from launchscope.adopt.definitions import Imports
from launchscope.adopt.hoisting import Hoisting, needs_split, snapshots, split
from launchscope.adopt.patch import Fix
from launchscope.adopt.region import Region
from launchscope.adopt.sorting import Item, sorted_items
from launchscope.adopt.source import Edit


@dataclass
class Outline:
    """The region sorted. After `edits` the text has the same statements, and those of splits."""

    region: Region
    items: list[Item]
    edits: list[Edit]
    hoisted: dict[str, str]  # parameter: what the call passes for it, if that is no name
    attributes: dict[str, str]  # name in the function: `self.x`, to which the step binds it
    values: dict[str, tuple[int, int]]  # name in the function: the part of a statement it is for
    fixes: tuple[tuple[Fix, int], ...] = ()
    edits_beside: list[Edit] = field(default_factory=list)


def outline(region: Region, known: Imports) -> Outline:
    """Sort the statements of a region. Raises RefusedError where that is not safe."""
    owner = region.source.owner_of(region.function)
    step = sorted_items(region, known, owner)
    items, hoisting = step.items, Hoisting(region, step, known, owner)
    edits = []
    for index, item in enumerate(items):
        hoisting.may_fetch = not any("forward" in other.calls for other in items[:index])
        if item.splits or (item.role == "core" and needs_split(item)):
            edits.append(split(item, items[index + 1 :], region.source, hoisting))
        elif item.role == "core":
            for node in item.nodes:
                hoisting.visit(node)
    edits += [*hoisting.edits, *snapshots(items, hoisting)]
    return Outline(region, items, edits, hoisting.hoisted, hoisting.attributes, hoisting.values)
