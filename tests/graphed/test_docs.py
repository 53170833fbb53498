"""The examples of docs/graphed.md run, and are replayed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.graphed.emulation import EmulatedGpu, gpu

__all__ = ["gpu"]
PAGE = Path(__file__).parents[2] / "docs" / "graphed.md"


def test_the_examples_of_the_page_run_one_after_the_other(
    gpu: EmulatedGpu, tmp_path: Path, monkeypatch: Any
) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    ):
        exec(compile(code, str(tmp_path / f"example_{number}.py"), "exec"), space)
    stats = space["step"].stats
    assert stats.replayed > 15
    assert {reason.code for reason in stats.reasons} == {"warmup"}
