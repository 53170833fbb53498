"""Which line of a source chooses the CPU, and how."""

from __future__ import annotations

import ast

import pytest

from launchscope.runner.child.rehearsal.device_choice import choices, chosen_option


@pytest.mark.parametrize(
    ("line", "way"),
    [
        ('device = "cpu"', "names"),
        ('self.device: str = "cpu:0"', "names"),
        ('config["device"] = torch.device("cpu")', "names"),
        ('config = {"lr": 0.1, "device": "cpu"}', "names"),
        ('DEVICE = "cuda" if torch.cuda.is_available() else "cpu"', "names"),
        ('if (dev := wanted or "cpu") == "cuda": pass', "names"),
        ('anything = torch.device("cpu", 0)', "names"),
        ('torch.set_default_device("cpu")', "names"),
        ('def train(model, *, epochs=1, device="cpu"): pass', "names"),
        ('trainer = Trainer(accelerator="cpu")', "names"),
        ('parser.add_argument("-d", "--device", default="cpu")', "option"),
        ('model = model.to("cpu")', "moves"),
        ("if torch.cuda.is_available(): model.cuda()", "asks"),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ""', "hides"),
    ],
)
def test_each_way_to_choose_the_cpu_is_found_at_its_line(line: str, way: str) -> None:
    found = list(choices(ast.parse(f"import torch\n{line}\n")))
    assert found[0] == (way, 2)


@pytest.mark.parametrize(
    "line",
    [
        'device = "cuda"',
        'state = torch.load(path, map_location="cpu")',
        'backend = "cpu"',
        "loss = loss.cpu()",
        'parser.add_argument("--device", default="cuda")',
        'parser.add_argument("--kind", default="cpu")',
        "worker.is_available()",
        "prev = cpu = device",
    ],
)
def test_other_lines_choose_no_device(line: str) -> None:
    assert list(choices(ast.parse(line))) == []


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


def test_the_line_that_declares_a_given_option_is_found_whatever_its_default() -> None:
    tree = ast.parse('parser.add_argument("--device", default="cuda")')
    assert list(choices(tree, "--device")) == [("option", 1)]
