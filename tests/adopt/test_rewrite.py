"""The step of many loops moved into a graphed function, or refused; what moved computes the same.

`rewritten.txt` holds what becomes of each loop of `loops.py`. To accept an intended change, delete
it and run this file twice: the first run writes it and fails.
"""

from __future__ import annotations

import difflib
import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from launchscope.adopt.patch import Patch, Place, Ran, Refusal, rewrite
from tests.adopt.guessing import guessed_steps
from tests.adopt.host_order import HOST_ORDER
from tests.adopt.loops import LOOPS, SETUP
from tests.adopt.running import observed, run

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "rewritten.txt"
FILE = Path("/somewhere/train.py")
PLAIN = LOOPS["plain"]


@functools.cache
def rewritten(name: str) -> tuple[str, dict[str, torch.Tensor], Patch | Refusal]:
    """What a loop prints and leaves, and what becomes of it."""
    source = (SETUP + LOOPS[name]).encode()
    printed, left, places = observed(source, FILE)
    return printed, left, rewrite(places, lambda path: source)


def shown(result: Patch | Refusal) -> str:
    if isinstance(result, Refusal):
        return f"refused: {result.reason}, line {result.line}, {result.name}\n"
    before, after = (
        text.decode().splitlines(keepends=True) for text in (result.before, result.after)
    )
    lines = [line for line in difflib.unified_diff(before, after, n=1) if line[:2] != "@@"]
    fixes = "".join(f", {key}" for key, _ in result.hunks)
    return f"{result.covered}{fixes}\n{''.join(lines[6:])}"


@functools.cache
def golden() -> dict[str, str]:
    if not GOLDEN.exists():
        sections = [f"===== {name}\n{shown(rewritten(name)[2])}" for name in LOOPS]
        GOLDEN.write_text("".join(sections))
        pytest.fail(f"{GOLDEN} was written: look at it, and run again")
    return golden_sections()


def golden_sections() -> dict[str, str]:
    found = GOLDEN.read_text().split("===== ")[1:] if GOLDEN.exists() else []
    return {name: text for name, _, text in (section.partition("\n") for section in found)}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_becomes_what_was_looked_at(name: str) -> None:
    assert shown(rewritten(name)[2]) == golden()[name]


# Without the golden file, all of them: the test that writes it fails then.
REWRITTEN = [name for name in LOOPS if not golden_sections().get(name, "").startswith("refused")]


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_rewritten_loop_prints_and_leaves_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCHSCOPE_GRAPHED", "0")
    # A fix sets it, for the whole process.
    checks = torch.distributions.Distribution._validate_args
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", checks)
    printed, left, result = rewritten(name)
    assert isinstance(result, Patch)
    printed_now, left_now = run(result.after, FILE)
    assert printed_now == printed
    rounds = any(key == "fused" for key, _ in result.hunks)
    for key in left.keys() & left_now.keys():
        if rounds:
            torch.testing.assert_close(left_now[key], left[key])
        else:
            assert torch.equal(left_now[key], left[key]), key


def test_most_loops_are_rewritten() -> None:
    patches = [name for name in LOOPS if isinstance(rewritten(name)[2], Patch)]
    assert len(patches) >= 60


@pytest.mark.parametrize("name", REWRITTEN)
def test_nothing_but_the_step_and_its_fixes_changes(name: str) -> None:
    """Every line outside of the step is still there, to the last sign."""
    result = rewritten(name)[2]
    assert isinstance(result, Patch)
    before = result.before.decode().splitlines()
    fixed = {line + more for _, line in result.hunks for more in range(4)}
    outside = Counter(
        line
        for number, line in enumerate(before, 1)
        if not result.first_line <= number <= result.last_line and number not in fixed
    )
    assert outside <= Counter(result.after.decode().splitlines())
    assert result.after.decode().splitlines()[result.import_line - 1] == (
        "from launchscope import graphed"
    )


SAMPLES = {
    "amp_gradscaler": "step",
    "convnet": "step",
    "data_dependent": "step",
    "gan": "step",
    "handwritten_sgd": "step",
    "item_in_step": "step",
    "lstm": "step",
    "small_gpt": "step",
    "small_mlp": "step",
    "torch_compile": "step",
    "variable_lengths": "step",
    "wide_mlp": "step",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_training_step_of_a_sample_workload_moves_whole(
    name: str, sample_workloads: Path
) -> None:
    path = sample_workloads / f"{name}.py"
    (places,) = guessed_steps(path, path.read_text())
    result = rewrite(places, Path.read_bytes)
    assert isinstance(result, Patch), result
    assert result.covered == SAMPLES[name]
    compile(result.after, name, "exec")


# ----------------------------------------------------------------------------------- bad input


def of(source: bytes, places: list[Place] | None = None) -> Patch | Refusal:
    if places is None:
        _, _, places = observed(source, FILE)
    return rewrite(places, lambda path: source)


def patched(source: bytes, places: list[Place] | None = None) -> Patch:
    result = of(source, places)
    assert isinstance(result, Patch), result
    return result


def changed(transform: Callable[[str], str]) -> bytes:
    return transform(SETUP + PLAIN).encode()


def test_tabs_stay_tabs() -> None:
    result = patched(changed(lambda text: text.replace("    ", "\t")))
    assert b"\n\toptimizer.step()\n\treturn loss.detach()\n" in result.after
    assert b"    " not in result.after


def test_line_ends_of_windows_stay() -> None:
    result = patched(changed(lambda text: text.replace("\n", "\r\n")))
    assert result.after.count(b"\n") == result.after.count(b"\r\n")


def test_an_encoding_and_a_byte_order_mark_stay() -> None:
    latin = ("# -*- coding: latin-1 -*-\nname = 'é'\n" + SETUP + PLAIN).encode("latin-1")
    assert patched(latin).after.startswith(latin[:40])
    marked = b"\xef\xbb\xbf" + (SETUP + "name = 'é'\n" + PLAIN).encode()
    result = patched(marked)
    assert result.after.startswith(b"\xef\xbb\xbf")
    assert "é" in result.after.decode()


def test_a_file_without_a_last_newline_is_rewritten() -> None:
    assert patched(changed(str.rstrip)).after.endswith(b"")


BATCHES = """\
from torch.utils.data import DataLoader, TensorDataset
{made}
for x, y in batches:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""
DATA = "data, labels = torch.randn(8, 4), torch.randint(2, (8,))\n"
ON_DEVICE = {
    "sent": DATA + "data = data.to(device)\nbatches = DataLoader(TensorDataset(data, labels), 2)",
    "computed from what was sent": (
        "data = torch.randn(8, 4).to(device)\nlabels = data[:, :2].argmax(1)\n"
        "held = TensorDataset(data.cpu(), labels)\nbatches = DataLoader(dataset=held, batch_size=2)"
    ),
    "made there": (
        "held = [(torch.randn(4, device=device), torch.tensor(i % 2)) for i in range(8)]\n"
        "batches = DataLoader(held, batch_size=2)"
    ),
    "put into a list": (
        "held = []\nfor x, y in loader:\n    held.append((x[0].to(device), y[0]))\n"
        "batches = DataLoader(held, batch_size=2)"
    ),
    "by a class": (
        DATA + "class Held:\n    def __init__(self):\n        self.data = data.to(device)\n"
        "    def __len__(self):\n        return 8\n"
        "    def __getitem__(self, at):\n        return self.data[at], labels[at]\n"
        "batches = DataLoader(Held(), batch_size=2)"
    ),
    "by a function": (
        "def load():\n    return [(x[0].to(device), y[0]) for x, y in loader]\n"
        "batches = DataLoader(load(), batch_size=2)"
    ),
    "by collate_fn": (
        DATA + "def joined(rows):\n    x, y = zip(*rows)\n"
        "    return torch.stack(x).to(device), torch.stack(y)\n"
        "batches = DataLoader(TensorDataset(data, labels), 2, collate_fn=joined)"
    ),
    "by default": (
        DATA + "torch.set_default_device(device)\n"
        "batches = DataLoader(TensorDataset(data, labels), 2)"
    ),
}
ON_HOST = {
    "made there": DATA + "batches = DataLoader(TensorDataset(data, labels), 2)",
    "of another type": (
        DATA + "data = data.to(torch.float32)\nbatches = DataLoader(TensorDataset(data, labels), 2)"
    ),
    "sent to it": (
        DATA + 'data = data.to("cpu")\nbatches = DataLoader(TensorDataset(data, labels), 2)'
    ),
}


def pinned(made: str) -> bool:
    source = (SETUP + BATCHES.replace("{made}", made)).encode()
    return "pin_memory" in [key for key, _ in patched(source).hunks]


@pytest.mark.parametrize("made", ON_HOST.values(), ids=ON_HOST)
def test_batches_from_the_host_are_pinned(made: str) -> None:
    assert pinned(made)


@pytest.mark.parametrize("made", ON_DEVICE.values(), ids=ON_DEVICE)
def test_batches_that_may_be_on_the_gpu_are_not_pinned(
    made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "set_default_device", lambda device: None)
    assert not pinned(made)


@pytest.mark.parametrize("called", ["run(data.to(device))", "run(data)"])
def test_a_data_set_that_a_function_is_given_is_looked_for_at_its_calls(called: str) -> None:
    loop = BATCHES.partition("{made}\n")[2].replace("\n", "\n    ").rstrip()
    source = (
        f"{SETUP}{BATCHES.partition('{')[0]}{DATA}def run(held):\n"
        f"    batches = DataLoader(TensorDataset(held, labels), 2)\n    {loop}\n{called}\n"
    )
    keys = [key for key, _ in patched(source.encode()).hunks]
    assert ("pin_memory" in keys) == (called == "run(data)")


def test_signs_of_several_bytes_in_front_of_a_copy_are_counted_right() -> None:
    body = PLAIN.replace("model(x), y)", 'model(x), y if "é𝄞" else y.to(device))')
    result = of((SETUP + body).encode())
    assert isinstance(result, Patch)
    assert 'if "é𝄞" else' in result.after.decode()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"x = (\n", "unreadable"),
        (b"# coding: no-such\nx = 1\n", "unreadable"),
        (b"x = '\xff'\n", "unreadable"),
        (b"x = 1\n" * 40, "changed"),
        (b"", "changed"),
    ],
)
def test_a_file_that_is_not_what_ran_is_refused(source: bytes, reason: str) -> None:
    _, _, places = observed((SETUP + PLAIN).encode(), FILE)
    result = of(source, places)
    assert isinstance(result, Refusal)
    assert result.reason == reason


def test_a_file_that_is_gone_is_refused() -> None:
    def read(path: Path) -> bytes:
        raise FileNotFoundError(path)

    _, _, places = observed((SETUP + PLAIN).encode(), FILE)
    result = rewrite(places, read)
    assert isinstance(result, Refusal)
    assert result.reason == "no_source"


def place(what: str, *frames: tuple[str, int, str]) -> Place:
    return Place(what, frames)  # type: ignore[arg-type]


A, B = "/a.py", "/b.py"


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([], "no_place"),
        ([place("forward")], "no_place"),
        ([place("forward", (A, 3, "<module>")), place("backward")], "installed"),
        ([place("forward", (A, 1, "f")), place("backward", (B, 1, "g"))], "two_files"),
        ([place("forward", (A, 1, "f")), place("backward", (A, 1, "g"))], "two_functions"),
        ([place("forward", ("<stdin>", 1, "<module>"))], "no_source"),
        ([place(w, (A, 2, "<module>")) for w in ("forward", "backward", "step")], "installed"),
    ],
)
def test_places_that_no_statements_hold_are_refused(places: list[Place], reason: str) -> None:
    result = of(b"for _ in range(3):\n    trainer.fit()\n", places)
    assert isinstance(result, Refusal)
    assert result.reason == reason


ENGINE = b"""import math
import sys
import torch


def train_one_epoch(model, criterion, loader, optimizer):
    for x, y in loader:
        loss = criterion(model(x), y)
        value = loss.item()
        if not math.isfinite(value):
            print(f"loss is {value}")
            sys.exit(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
STEP = (("forward", 8), ("zero_grad", 13), ("backward", 14), ("step", 15))


@pytest.mark.parametrize(
    ("main", "refused"),
    [
        (
            "for epoch in range(3):\n    train_one_epoch(model, criterion, loader, optimizer)\n",
            None,
        ),
        (
            "try:\n    train_one_epoch(model, criterion, loader, optimizer)\n"
            "finally:\n    torch.save(model.state_dict(), 'last.pt')\n",
            "if not math.isfinite(value):",
        ),
        (
            "for epoch in range(3):\n    try:\n"
            "        train_one_epoch(model, criterion, loader, optimizer)\n"
            "    except RuntimeError:\n        print('again')\n",
            "if not math.isfinite(value):",
        ),
    ],
    ids=["alone", "saves", "catches"],
)
def test_what_other_files_do_when_a_step_ends_early_keeps_its_order(
    main: str, refused: str | None
) -> None:
    line = 1 + main.splitlines().index(
        next(text for text in main.splitlines() if "train_one_epoch" in text)
    )
    called = (B, line, "<module>")
    places = [place(what, (A, at, "train_one_epoch"), called) for what, at in STEP]
    files = {Path(A): ENGINE, Path(B): main.encode()}
    result = rewrite(places, files.__getitem__)
    if refused is None:
        assert isinstance(result, Patch)
    else:
        assert isinstance(result, Refusal)
        assert (result.reason, result.name) == ("host_work", refused)


def test_code_in_a_string_is_refused() -> None:
    source = b"for _ in range(3):\n    exec(text)\n"
    places = [place(w, (A, 2, "<module>")) for w in ("forward", "backward", "step")]
    result = of(source, places)
    assert isinstance(result, Refusal)
    assert result.reason == "no_source"


def test_a_step_that_is_graphed_already_is_refused() -> None:
    body = """\
def graphed(function):
    return function


@graphed
def step(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()


for x, y in loader:
    step(x, y)
"""
    result = of((SETUP + body).encode())
    assert isinstance(result, Refusal)
    assert result.reason == "already_graphed"


@pytest.mark.parametrize("folder", [FILE.parent, Path.cwd()])
@pytest.mark.parametrize("call", ["{}", "print({})", 'log["loss"].append({})'])
def test_the_loop_of_a_function_is_found_wherever_its_value_goes(call: str, folder: Path) -> None:
    body = f"""\
def train_one_epoch():
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


log = {{"loss": []}}
for epoch in range(2):
    {call.format("train_one_epoch()")}
"""
    source = (SETUP + body).encode()
    _, _, places = observed(source, folder / "train.py")
    assert patched(source, places).covered == "step"


def test_sgd_is_not_fused_where_some_parameters_had_no_gradient() -> None:
    """torch's fused form fails where one joins others that have a buffer of momentum."""
    source = (SETUP + LOOPS["scheduler_behind"]).encode()
    for partial in (False, True):
        made = rewrite(
            observed(source, FILE)[2], lambda path: source, Ran(partial_momentum=partial)
        )
        assert isinstance(made, Patch)
        assert ("fused" in [key for key, _ in made.hunks]) is not partial


# ------------------------------------------------------------- what must not be moved in silence

REFUSED_OR_EQUAL = {
    "a helper reads a name of the step": """\
def compute():
    return criterion(out, y)


for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    loss = compute()
    loss.backward()
    optimizer.step()
print(loss.item())
""",
    "a helper reads the weights before the update": """\
def weight():
    return sum(p.sum() for p in model.parameters()).item()


for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    before = weight()
    optimizer.step()
    print(before, loss.item())
""",
    "a target is computed before the update": """\
target = nn.Linear(4, 2)


@torch.no_grad()
def value(x):
    return target(x) + model(x)


for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    goal = value(x)
    optimizer.step()
    print(loss.item(), goal.sum().item())
""",
    "a view is changed after its source was read": """\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    print(out.sum().item())
    view = out.detach()
    view.add_(1)
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
""",
    "the state of the optimizer is shown before its step": """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    print(optimizer.state[model[0].weight])
    optimizer.step()
""",
    "the rate is read between scheduler and step": """\
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    scheduler.step()
    lr = optimizer.param_groups[0]["lr"]
    optimizer.step()
    print(lr, f"{loss.item():.4f}")
""",
    "losses in a dictionary": """\
for x, y in loader:
    optimizer.zero_grad()
    losses = {}
    losses["a"] = criterion(model(x), y)
    losses["b"] = model(x).pow(2).mean()
    loss = sum(losses.values())
    loss.backward()
    optimizer.step()
    print({key: value.item() for key, value in losses.items()})
""",
    "batches are swapped": """\
a, b = loader[0], loader[1]
for _ in range(6):
    x, y = a
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    a, b = b, a
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "a number from the loss scales the loss": """\
mean = 1.0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    mean = 0.9 * mean + 0.1 * loss.item()
    (loss * mean).backward()
    optimizer.step()
    print(mean)
""",
    "the best weights are kept": """\
best = 1e9
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    if loss < best:
        best = loss.item()
        kept = {name: value.clone() for name, value in model.state_dict().items()}
    loss.backward()
    optimizer.step()
print(best, sum(value.sum().item() for value in kept.values()))
""",
    "gradients are summed by hand": """\
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    norm = 0.0
    for p in model.parameters():
        norm += p.grad.norm().item() ** 2
    optimizer.step()
    print(norm)
""",
    "weights are frozen in turn": """\
for i, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    for p in model[0].parameters():
        p.requires_grad = i % 2 == 0
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(loss.item())
""",
    "the mode is set inside": """\
for x, y in loader:
    optimizer.zero_grad()
    model.train()
    loss = criterion(model(x), y)
    model.eval()
    loss.backward()
    optimizer.step()
    print(loss.item(), model.training)
""",
    "private names": """\
class Trainer:
    def __init__(self):
        self.__model = model

    def step(self, x, y):
        optimizer.zero_grad()
        loss = criterion(self.__model(x), y)
        loss.backward()
        optimizer.step()
        return loss


trainer = Trainer()
for x, y in loader:
    print(trainer.step(x, y).item())
""",
    "two fetches in one call": """\
source = iter(loader * 3)
for _ in range(6):
    optimizer.zero_grad()
    loss = F.mse_loss(model(next(source)[0]), model(next(source)[0]).detach())
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
""",
    "a fetch in a comprehension": """\
source = iter(loader * 3)
for _ in range(6):
    optimizer.zero_grad()
    loss = sum(model(next(source)[0]).mean() for _ in range(2))
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
""",
    "a fetch in an inner loop's call": """\
source = iter([x for x, y in loader] * 3)
for _ in range(6):
    optimizer.zero_grad()
    for _ in range(2):
        loss = model(next(source)).mean()
        loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
""",
    "a fetch in a branch": """\
source = iter([x for x, y in loader] * 3)
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = model(next(source) if len(x) > 7 else x).mean()
    loss.backward()
    optimizer.step()
print(len(list(source)))
""",
    "a fetch that may not be needed": """\
source = iter([x for x, y in loader] * 3)
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = model(x).mean() + (len(x) > 7 and model(next(source)).mean())
    loss.backward()
    optimizer.step()
print(len(list(source)))
""",
    "fetch in the block before forward": """\
source = iter([x for x, y in loader] * 3)
flag = False
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    if flag:
        loss = model(next(source)).mean()
    else:
        loss = model(x).mean()
    loss.backward()
    optimizer.step()
print(len(list(source)))
""",
    "a copy of what the step has changed in place": """\
center = torch.zeros(2, dtype=torch.float64)
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    center.mul_(0.5).add_(out.detach().mean(0))
    loss = (out - center.to(torch.float32)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
""",
    "a copy of a view that the step has changed": """\
center = torch.zeros(2, dtype=torch.float64)
part = center[:1]
for x, y in loader:
    optimizer.zero_grad()
    out = model(x)
    center.mul_(0.5).add_(out.detach().mean(0))
    loss = (out - part.to(torch.float32)).pow(2).mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
""",
    "a view of a weight is read": """\
log = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    log.append(model[0].weight.detach()[0].tolist())
    optimizer.step()
print(log[0], log[-1])
""",
    "evaluation directly behind zero_grad": """\
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        before = criterion(model(x), y)
    model.train()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    print(f"{before.item():.5f} {loss.item():.5f}")
""",
    "a key that is a keyword": """\
data = [{"x": x, "class": y} for x, y in loader]
for batch in data:
    optimizer.zero_grad()
    loss = criterion(model(batch["x"].to(device)), batch["class"].to(device))
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
""",
    "rate of a group known by a name": """\
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
pg = optimizer.param_groups[0]
log = []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    log.append(pg["lr"])
    scheduler.step()
print(log)
""",
    "rate set through a name of the groups": """\
groups = optimizer.param_groups
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for g in groups:
        g["lr"] = 0.1 / (step + 1)
    optimizer.step()
print(f"{loss.item():.5f}")
""",
    "momentum updated under try": """\
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    try:
        for g in optimizer.param_groups:
            g.update(momentum=0.9 / (step + 1))
    finally:
        pass
    optimizer.step()
print(f"{loss.item():.5f}")
""",
    "rate set with a print": """\
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    for g in optimizer.param_groups:
        g["lr"] *= 0.5
        print("rate", g["lr"])
    optimizer.step()
print(f"{loss.item():.5f}")
""",
    "state dict kept in the step": """\
log = []
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    sd = model.state_dict()
    named = dict(model.named_parameters())
    w, b = model[0].weight, model[0].bias
    l1 = getattr(model, "0").weight
    loss = criterion(model(x), y)
    loss.backward()
    log.append([t.sum().item() for t in (sd["0.weight"], named["0.weight"], w, b, l1)])
    optimizer.step()
print(log)
""",
    "loss kept and halved": """\
kept = {}
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    kept[step] = loss.detach()
    loss /= 2
    loss.backward()
    optimizer.step()
print([f"{v:.5f}" for v in kept.values()])
""",
    "a logger of the file that reads gradients": """\
class Monitor:
    def __init__(self, model):
        self.model, self.norms = model, []

    def log(self, step):
        grads = [p.grad for p in self.model.parameters()]
        self.norms.append(sum(grad.norm().item() for grad in grads if grad is not None))


monitor = Monitor(model)
for step, (x, y) in enumerate(loader):
    loss = criterion(model(x), y)
    loss.backward()
    monitor.log(step)
    optimizer.step()
    optimizer.zero_grad()
print([f"{v:.5f}" for v in monitor.norms])
""",
    "a logger that reads weights": """\
class Monitor:
    def __init__(self):
        self.norms = []

    def record(self):
        self.norms.append(sum(p.norm().item() for p in model.parameters()))


monitor = Monitor()
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    monitor.record()
    optimizer.step()
print([f"{v:.5f}" for v in monitor.norms])
""",
    "a meter of the file": """\
class Meter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n


meter = Meter()
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    meter.update(loss.item(), len(x))
    optimizer.step()
print(f"{meter.sum / meter.count:.5f}")
""",
    "a rate set under a condition, between backward and step": """\
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    if step in (2, 4):
        for group in optimizer.param_groups:
            group["lr"] *= 0.1
    optimizer.step()
print(f"{loss.item():.5f}")
""",
    "a name of a parameter in a method": """\
class Trainer:
    def __init__(self):
        self.model, self.optimizer, self.norms = model, optimizer, []

    def train_batch(self, x, y):
        self.optimizer.zero_grad()
        head = self.model[2].weight
        loss = criterion(self.model(x), y) + 1e-3 * head.pow(2).sum()
        loss.backward()
        self.norms.append(head.norm().item())
        self.optimizer.step()


trainer = Trainer()
for x, y in loader:
    trainer.train_batch(x, y)
print([f"{norm:.5f}" for norm in trainer.norms])
""",
    "a fetch that changes what is logged": """\
class Sampler:
    def __init__(self):
        self.pos = 0

    def draw(self):
        self.pos += 1
        return loader[self.pos % 6]


sampler, rows = Sampler(), []
for _ in range(6):
    optimizer.zero_grad()
    rows.append({"pos": sampler.pos})
    x, y = sampler.draw()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print(rows)
""",
    "a fetch that changes what the loss reads": """\
class Shards:
    def __init__(self):
        self.at, self.temperature = 0, 1.0

    def next_batch(self):
        self.at += 1
        self.temperature = 1.0 if self.at < 3 else 2.0
        return loader[self.at % 6]


shards = Shards()
x, y = shards.next_batch()
for _ in range(6):
    optimizer.zero_grad()
    loss = criterion(model(x) / shards.temperature, y)
    x, y = shards.next_batch()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
""",
    "a length that is printed before an item is taken": """\
todo = list(range(6))
for _ in range(6):
    optimizer.zero_grad()
    print(len(todo))
    i = todo.pop()
    x, y = loader[i]
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
""",
    "a function that changes a global": """\
pos = 0


def get_batch():
    global pos
    pos += 1
    return loader[pos % 6]


for _ in range(6):
    optimizer.zero_grad()
    print(pos)
    x, y = get_batch()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
""",
    "a mean that is asked for after it was updated": """\
class Mean:
    def __init__(self):
        self.value = 0.0

    def update(self, value):
        self.value = 0.9 * self.value + 0.1 * value
        return self.value


ema, log = Mean(), []
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    smooth = ema.update(loss.item())
    current = ema.value
    log.append((smooth, current))
print([f"{a:.4f} {b:.4f}" for a, b in log])
""",
    "counts within try": """\
seen = skipped = 0
for step, (x, y) in enumerate(loader):
    try:
        optimizer.zero_grad()
        seen += len(x)
        if step == 3:
            x = x[:, :2]
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    except RuntimeError:
        skipped += 1
        print("skipped", seen)
print(seen, skipped)
""",
    "a count before a fetch within try": """\
step, it = 0, iter(loader)
for _ in range(10):
    try:
        optimizer.zero_grad()
        step += 1
        x, y = next(it)
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    except StopIteration:
        it = iter(loader)
print(step)
""",
    "a print behind the step within try": """\
for x, y in loader:
    try:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"{loss.item():.5f}")
    except RuntimeError:
        print("skipped")
""",
    "a logged loss within autocast": """\
entropy = 0.0
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x)
        loss = criterion(out, y)
        entropy += F.cross_entropy(out.detach() * 1.1, y)
    loss.backward()
    optimizer.step()
print(f"{float(entropy):.7f}")
""",
    "accuracy within autocast": """\
correct = 0
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x)
        loss = criterion(out, y)
        correct += (out.argmax(1) == y).sum().item()
    loss.backward()
    optimizer.step()
print(correct)
""",
    "a copy in a branch": """\
weights = [torch.ones(2), torch.ones(2), None, None, torch.ones(2), None]
for (x, y), w in zip(loader, weights):
    optimizer.zero_grad()
    out = model(x)
    if w is not None:
        loss = F.cross_entropy(out, y, weight=w.to(device))
    else:
        loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
""",
    "a copy in a conditional expression": """\
data = [{"x": x, "y": y} for x, y in loader]
data[0]["w"] = data[2]["w"] = torch.ones(2)
for batch in data:
    optimizer.zero_grad()
    w = batch["w"].to(device) if "w" in batch else None
    out = model(batch["x"].to(device))
    loss = F.cross_entropy(out, batch["y"], batch["w"].to(device) if "w" in batch else None)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
""",
    "an assertion in front of the update": """\
try:
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y) * (float("nan") if step == 4 else 1.0)
        loss.backward()
        assert torch.isfinite(loss)
        optimizer.step()
except AssertionError:
    pass
""",
    "features kept and changed in a loop": """\
kept = []
for x, y in loader:
    optimizer.zero_grad()
    feats = [layer(x) for layer in model[:1]]
    kept.append(feats[0].detach())
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    with torch.no_grad():
        for f in feats:
            f.div_(2)
    optimizer.step()
print([f"{k.sum():.4f}" for k in kept])
""",
    "named parameters kept by a comprehension": """\
log = []
for x, y in loader:
    optimizer.zero_grad()
    named = {n: p.detach() for n, p in model.named_parameters()}
    loss = criterion(model(x), y)
    loss.backward()
    log.append(named["0.weight"].sum().item())
    optimizer.step()
print(log)
""",
    "random by another name": """\
import random as rnd
rnd.seed(0)
for x, y in loader:
    optimizer.zero_grad()
    print(rnd.random())
    scale = rnd.random()
    loss = criterion(model(x * scale), y)
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.5f}")
""",
    "a layer that changes a view of what it gets": """\
body = nn.Linear(4, 4)
head = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2))
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
kept = []
for x, y in loader:
    optimizer.zero_grad()
    feats = body(x)
    kept.append(feats.detach())
    loss = criterion(head(feats.flatten(1)), y)
    loss.backward()
    optimizer.step()
print([f"{k.sum():.4f}" for k in kept])
""",
    "a module that changes a tensor that it gets": """\
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x, counts):
        counts.add_(x.detach().abs().mean())
        return self.layer(x)


model = Counting()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
counts, seen = torch.zeros(1), []
for x, y in loader:
    optimizer.zero_grad()
    seen.append(counts.item())
    loss = criterion(model(x, counts=counts), y)
    loss.backward()
    optimizer.step()
print(seen)
""",
    "a summary of a meter that was updated": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n


class Progress:
    def __init__(self, meters):
        self.meters = meters

    def summary(self):
        return " ".join(f"{meter.avg:.4f}" for meter in self.meters)


losses = Meter()
progress = Progress([losses])
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    losses.update(loss.item(), len(x))
    line = progress.summary()
    loss.backward()
    optimizer.step()
    print(line)
""",
    "a weight of a curriculum that counts": """\
class State:
    step = 0


class Curriculum:
    def __init__(self, state):
        self.state = state

    def weight(self):
        return 0.0 if self.state.step < 3 else 1.0


state = State()
curriculum = Curriculum(state)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    state.step += 1
    weight = curriculum.weight()
    (loss * weight).backward()
    optimizer.step()
    print(f"{loss.item():.5f} {weight}")
""",
    "a lambda that reads a dictionary": """\
st = {"step": 0}
prog = lambda: st["step"]
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    st["step"] += 1
    p = prog()
    loss.backward()
    optimizer.step()
    print(p)
""",
    "a method that reads a global": """\
class Timer:
    def frac(self):
        return step / 10


step, timer = 0, Timer()
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    step += 1
    f = timer.frac()
    loss.backward()
    optimizer.step()
    print(f)
""",
    "an order that is shuffled": """\
import random
random.seed(0)
order = list(range(6))
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    random.shuffle(order)
    first = order[0]
    loss.backward()
    optimizer.step()
    print(first)
""",
    "a row of a table": """\
import csv, io
file = io.StringIO()
writer = csv.writer(file)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    writer.writerow([optimizer.param_groups[0]["lr"], len(x)])
    loss.backward()
    optimizer.step()
print(file.getvalue())
""",
    "a row of a database": """\
import sqlite3
connection = sqlite3.connect(":memory:")
cursor = connection.cursor()
cursor.execute("create table rows (n integer)")
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    cursor.execute("insert into rows values (?)", (len(x),))
    loss.backward()
    optimizer.step()
print(cursor.execute("select count(*) from rows").fetchall())
""",
    "a count of its own that an object reads": """\
class Ann:
    def __init__(self, trainer):
        self.trainer = trainer

    def beta(self):
        return self.trainer.n / 10


class Trainer:
    def __init__(self):
        self.n = 0
        self.ann = Ann(self)
        self.betas = []

    def fit(self):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            self.n += 1
            b = self.ann.beta()
            loss.backward()
            optimizer.step()
            self.betas.append(b)


trainer = Trainer()
trainer.fit()
print(trainer.betas)
""",
    "a tracker by a dictionary": """\
class Meter:
    def __init__(self):
        self.sum = self.n = self.avg = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.n += n
        self.avg = self.sum / self.n


class Progress:
    def __init__(self, meters):
        self.meters = meters

    def summary(self):
        return " ".join(f"{meter.avg:.4f}" for meter in self.meters)


meters = {"loss": Meter()}


class Tracker:
    def __init__(self, meters):
        self.meters = meters

    def update(self, **values):
        for name, value in values.items():
            self.meters[name].update(value)


tracker = Tracker(meters)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    tracker.update(loss=loss.item())
    n = meters["loss"].n
    loss.backward()
    optimizer.step()
    print(n)
""",
}


REFUSED_OR_EQUAL |= HOST_ORDER


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize("name", REFUSED_OR_EQUAL)
def test_a_patch_computes_and_prints_the_same_or_there_is_none(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCHSCOPE_GRAPHED", "0")
    source = (SETUP + REFUSED_OR_EQUAL[name]).encode()
    printed, left, places = observed(source, FILE)
    result = rewrite(places, lambda path: source)
    if isinstance(result, Refusal):
        return
    printed_now, left_now = run(result.after, FILE)
    if not result.hunks:
        assert printed_now == printed
    for key in left.keys() & left_now.keys():
        torch.testing.assert_close(left_now[key], left[key])
