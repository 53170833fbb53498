"""The examples in the pages of the rules, those with graphs and streams among them."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from launchscope.rules import Rule, all_rules
from tests.rules.examples import assert_same, run

pytestmark = pytest.mark.gpu
RULES = [rule for rule in all_rules() if rule.fixable]


# The names are made on another stream than an example captures on; a script has one for both.
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.code))
def test_an_example_runs_and_both_versions_compute_the_same(rule: Rule) -> None:
    dist.init_process_group("nccl", store=HashStore(), rank=0, world_size=1)
    try:
        with torch.cuda.stream(torch.cuda.Stream()):  # autograd remembers it
            before, after = (run(rule, version, "cuda") for version in ("Before", "After"))
        torch.cuda.synchronize()
        assert_same(rule, before, after)
    finally:
        dist.destroy_process_group()
