"""All families, and the choice of some by name."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.zoo.families import (
    graphs,
    science,
    sequences,
    streams,
    tabular,
    text,
    timm_models,
    vision,
)
from tests.benchmarks.zoo.workload import Family, Workload

__all__ = ["FAMILIES", "chosen", "find"]

FAMILIES: tuple[Family, ...] = (
    tabular.FAMILY,
    science.FAMILY,
    sequences.FAMILY,
    streams.FAMILY,
    graphs.FAMILY,
    vision.FAMILY,
    timm_models.FAMILY,
    text.FAMILY,
)


def chosen(only: Sequence[str]) -> list[Workload]:
    """All workloads, or those of these families or names.

    Raises ValueError for a name that is neither.
    """
    names = {family.name for family in FAMILIES} | set(_by_name())
    unknown = sorted(set(only) - names)
    if unknown:
        raise ValueError(f"no such family or workload: {', '.join(unknown)}")
    return [
        workload
        for family in FAMILIES
        for workload in family.workloads
        if not only or family.name in only or workload.name in only
    ]


def find(name: str) -> Workload:
    return _by_name()[name]


def _by_name() -> dict[str, Workload]:
    return {w.name: w for family in FAMILIES for w in family.workloads}
