"""What a step does for the host goes behind the replay, and what may change the step stays."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launchscope.model import StepSource
from tests.runner.sources import Doubles, source_of


def host_work(tmp_path: Path, inside: str, **names: Any) -> StepSource:
    """The step of a loop that has these lines between backward and the optimizer."""
    code = (
        "for x in loader:\n    loss = model(x)\n    loss.backward()\n"
        + "".join(f"    {line}\n" for line in inside.splitlines())
        + "    optimizer.step()\n    probe()\n"
    )
    model = Doubles()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    last = code.count("\n") - 1
    found = source_of(
        tmp_path, code, [2, 3, last], ("x",),
        model=model, optimizer=optimizer, loader=[torch.ones(2, 3, requires_grad=True)], **names,
    )  # fmt: skip
    assert found is not None
    return found


STEP = "loss = model(static_x)\nloss.backward()\noptimizer.step()"


@pytest.mark.parametrize(
    ("line", "behind"),
    [
        ("total += loss.item()", "total += loss.item()"),
        ("total += loss.item() * len(x)", "total += loss.item() * len(x)"),
        ("value = loss.item()", "value = loss.item()"),
        ("print(total, loss)", "print(total, loss)"),
        ("losses.append(loss.item())", "losses.append(loss.item())"),
        ("kept.append(loss.detach())", "kept.append(loss.detach().clone())"),
        ("x = fetch()", "x = fetch()"),
    ],
)
def test_what_the_host_does_in_the_step_goes_behind_the_replay(
    tmp_path: Path, line: str, behind: str
) -> None:
    found = host_work(
        tmp_path, line,
        total=0.0, losses=[0.5], kept=[torch.ones(())], fetch=lambda: torch.ones(2, 3),
    )  # fmt: skip
    assert (found.static_code, found.behind) == (STEP, behind)
    assert "loss" in found.results


@pytest.mark.parametrize(
    "lines",
    [
        "if n % 100 == 0: print(loss.item())",
        "if n % 100 == 0:\n    print(loss.item())",
        "if n % args.every == 0 and n > 0:\n    told = loss.item()\n    print(\n"
        "        told,\n        n,\n    )\n    total = 0.0",
        "if log is not None:\n    if n == 3:\n        log.info('%s', loss)\n    else:\n"
        "        pass\nelse:\n    losses.append(loss.item())",
        "args.n += 1\nif args.n % 2:\n    print(loss)",
        "print(\n    loss.item(),\n)",
        "bar.set_postfix(loss=loss.item())",
    ],
)
def test_host_work_that_is_done_at_times_goes_behind_the_replay_as_a_whole(
    tmp_path: Path, lines: str
) -> None:
    found = host_work(
        tmp_path, lines, n=3, losses=[0.5], total=0.0, args=SimpleNamespace(every=2, n=0),
        log=logging.getLogger("quiet"), bar=SimpleNamespace(set_postfix=lambda **_: None),
    )  # fmt: skip
    assert (found.static_code, found.behind) == (STEP, lines)
    assert found.results == ("loss",)
    assert found.frozen == ()


def test_a_tensor_kept_in_a_list_at_times_is_copied_there(tmp_path: Path) -> None:
    lines = "if n % 2:\n    kept.append(loss.detach() * 2)\nelse:\n    kept.append(loss)"
    found = host_work(tmp_path, lines, n=3, kept=[torch.ones(())])
    copied = lines.replace("loss.detach() * 2", "(loss.detach() * 2).clone()")
    assert found.behind == copied.replace("append(loss)", "append(loss.clone())")
    assert host_work(tmp_path, lines, n=3, kept=[]).behind == found.behind


def test_a_number_kept_in_a_list_is_kept_as_it_is(tmp_path: Path) -> None:
    sizes = "if n % 2:\n    kept.append(x.size(0))"
    assert host_work(tmp_path, sizes, n=3, kept=[]).behind == sizes


@pytest.mark.parametrize(
    "lines",
    [
        "if n % 2:\n    loss = loss * 2\nclip(loss)",
        "if n % 2:\n    clip(model)",
        "if due(n):\n    print(loss.item())",
        "if loss.item() > 3e9:\n    raise ValueError",
        "if args.n % 2:\n    print(loss)\nargs.n = clip(loss)",
        "if args.n % 2:\n    print(loss)\nargs.advance(clip(loss))",
    ],
)
def test_a_choice_that_may_change_the_step_stays_in_it(tmp_path: Path, lines: str) -> None:
    args = SimpleNamespace(n=1, advance=lambda _: None)
    found = host_work(
        tmp_path, lines, n=0, args=args, clip=lambda _: 1, due=lambda n: False,
    )  # fmt: skip
    assert found.behind == ""
    assert lines.splitlines()[0] in found.static_code


@pytest.mark.parametrize(
    ("made", "behind", "kept"),
    [
        ("model(x)", "static_out.clone()", torch.ones(())),
        ("model(x).cpu()", "static_out.cpu()", torch.ones(())),
        ("model(x).item()", "static_out.item()", 0.5),
    ],
)
def test_an_output_kept_in_a_list_is_made_in_the_step_and_kept_behind_it(
    tmp_path: Path, made: str, behind: str, kept: Any
) -> None:
    code = f"for x in loader:\n    outs.append({made})\n    probe()\n"
    x = torch.ones(2, 3)
    found = source_of(tmp_path, code, [2], ("x",), model=Doubles(), loader=[x], outs=[kept])
    assert found is not None
    assert found.static_code == "static_out = model(static_x)"
    assert found.results == ("static_out",)
    assert found.behind == f"outs.append({behind})"


@pytest.mark.parametrize(
    "line", ["norm = clip(model).item()", "slope = x.grad.sum().item()", "scale(loss)"]
)
def test_what_might_change_the_step_stays_in_it(tmp_path: Path, line: str) -> None:
    found = host_work(tmp_path, line, clip=lambda _: torch.ones(()), scale=lambda _: None)
    assert found.behind == ""
    assert line.replace("x.grad", "static_x.grad") in found.static_code


def test_a_value_that_the_step_goes_on_with_stays_and_is_no_local_name(tmp_path: Path) -> None:
    found = host_work(tmp_path, "n += 1\nloss = loss * n", n=0)
    assert found.static_code.startswith("global n\nloss = model(static_x)\n")
    assert (found.behind, found.results, found.frozen) == ("", ("loss",), ("n",))


def test_a_batch_that_the_step_fetches_before_it_reads_it_is_told(tmp_path: Path) -> None:
    found = host_work(tmp_path, "x = fetch()\nmodel(x)", fetch=lambda: torch.ones(2, 3))
    assert found.fetched == ("x",)
    assert "static_x" not in found.static_code
