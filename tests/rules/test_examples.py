"""The examples in the pages of the rules are real code: they run, and both versions agree."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from launchscope.rules import Rule, all_rules
from tests.rules.examples import assert_same, example, needs_gpu, run

VERSIONS = ("Before", "After")


@pytest.fixture
def _cpu() -> Iterator[None]:
    """One process on the CPU."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


# A DataLoader with workers starts processes.
RULES = [
    pytest.param(rule, id=rule.code, marks=pytest.mark.child if rule.code == "LS020" else ())
    for rule in all_rules()
    if rule.fixable
]


@pytest.mark.child
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("_cpu")
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")
def test_an_example_runs_and_both_versions_compute_the_same(rule: Rule) -> None:
    codes = [example(rule, version) for version in VERSIONS]
    assert codes[0] != codes[1]
    for code in codes:
        compile(code, rule.code, "exec")
        assert max(map(len, code.splitlines())) <= 92
        assert len(code.splitlines()) <= 10
    here = {v: run(rule, v, "cpu") for v in VERSIONS if not needs_gpu(rule, v)}
    if len(here) == 2:
        assert_same(rule, here["Before"], here["After"])
