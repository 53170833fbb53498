from __future__ import annotations

import pytest
from msgspec.structs import replace

from launchscope.model import UnusedGpu
from launchscope.rules.findings.rehearsal import RULE
from tests.rules.cases import Case
from tests.rules.profiles import profile, rehearsal

CASES = (Case("71 device operations", rehearsal(), profile()),)


@pytest.mark.parametrize(
    ("unused", "said"),
    [
        (
            UnusedGpu("script"),
            "Move the model and its inputs to the GPU, or choose it on the command line",
        ),
        (UnusedGpu("build"), "Install a PyTorch with CUDA, and profile again."),
    ],
)
def test_a_gpu_that_the_script_does_not_use_is_named_with_the_way_to_use_it(
    unused: UnusedGpu, said: str
) -> None:
    base = rehearsal()
    (finding,) = RULE.check(replace(base, facts=replace(base.facts, unused_gpu=unused)))
    assert finding.advice.startswith(said)
    assert not finding.title.startswith("Nothing ran")
