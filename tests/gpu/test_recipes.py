"""The recipes for CI run as they are printed, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recipes import assert_all_pass_and_a_regression_fails, recipes

pytestmark = pytest.mark.gpu


def test_the_recipes_for_ci_run_as_printed(tmp_path: Path) -> None:
    assert_all_pass_and_a_regression_fails(tmp_path / "project", recipes())
