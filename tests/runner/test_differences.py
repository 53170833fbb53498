from __future__ import annotations

import json

import torch

from launchscope.runner.difference import of_outputs


def test_what_differs_from_nothing_is_far_and_still_a_number_of_json() -> None:
    far = of_outputs([(torch.ones(3), torch.zeros(3))])
    assert far is not None
    assert far > 1000
    json.dumps(far, allow_nan=False)


def test_equal_outputs_of_nothing_are_equal() -> None:
    assert of_outputs([(torch.zeros(3), torch.zeros(3))]) == 0.0
