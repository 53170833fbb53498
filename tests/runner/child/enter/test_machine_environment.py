"""What is noted of the environment that a script runs in, whatever its variables say."""

from __future__ import annotations

import pytest
import torch

from launchscope.runner.child.enter.machine import environment_of


@pytest.mark.child  # `platform` asks another program
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8", 8),
        (" 2 ", 2),
        ("0", 1),
        ("", 1),
        ("two", 1),
        ("-3", 1),
        ("9" * 5000, 1),
        ("\x1b]0;evil\x07\n::error::x ##[error]", 1),
    ],
)
def test_a_world_size_that_is_no_number_is_left_aside(
    text: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", text)
    assert environment_of(torch, on_gpu=False).world_size == size
