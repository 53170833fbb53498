"""The recipes for CI run as they are printed, without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.recipes import assert_all_pass_and_a_regression_fails, one_of_each

pytestmark = pytest.mark.child


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a test for a machine with a GPU")
def test_the_recipes_for_ci_run_as_printed(tmp_path: Path) -> None:
    assert_all_pass_and_a_regression_fails(tmp_path / "project", one_of_each(), blocks=1)
