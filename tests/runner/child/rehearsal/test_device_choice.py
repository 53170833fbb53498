"""Which option of a command line chooses the CPU."""

from __future__ import annotations

import pytest

from launchscope.runner.child.rehearsal.device_choice import chosen_option


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--epochs", "3", "--device", "cpu"], "--device"),
        (["--device=cpu:0"], "--device"),
        (["trainer.device=cpu"], "trainer.device"),
        (["--no_cuda"], "--no_cuda"),
        (["--device", "cuda", "cpu"], None),
        (["--cpus", "4"], None),
        (["--device"], None),
        ([], None),
    ],
)
def test_an_option_of_the_command_line_may_choose_the_cpu(
    words: list[str], option: str | None
) -> None:
    assert chosen_option(words) == option
