"""All steps, by name."""

from __future__ import annotations

from tests.goldens.zoo import science, sequences, streams, tabular
from tests.goldens.zoo.workload import Build

STEPS: dict[str, Build] = {
    **tabular.STEPS,
    **science.STEPS,
    **sequences.STEPS,
    **streams.STEPS,
}
