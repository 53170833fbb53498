"""`launchscope check --against HEAD` on unchanged code and on planted regressions, on a GPU.

    python -m tests.against_campaign FOLDER [--only TEXT ...] [--most N]   # runs what is left
    python -m tests.against_campaign FOLDER --summary

Each case has a result file in FOLDER, so a campaign can go on later, on the same kind of machine.
Goals: no unchanged check fails; every exact regression fails; every slowdown of 10 % fails where
half of the interval of the unchanged script is below 5 %. A slowdown is a share of the iteration
that the unchanged script has, so those cases come after `unchanged-...-timed` of their script.
With `--at-once` several cases run side by side, which disturbs their times: not for these ones and
the slowdowns, whose intervals count.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.regressions import REGRESSIONS, SCRIPT
from tests.workflows.repositories import repository, write

_OPTIONS = ("--warmup", "5", "--trace", "3", "--inspect", "2")
_TIMING = 40  # steps
_LONG_TIMING = 200  # where a time decides
_LIMIT_S = 1800
_PYTHONPATH = os.pathsep.join(
    [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
)
_REPEATS = 5  # unchanged checks of each script, and as many on a busy host
_NARROW_PCT = 5.0
_LOADER = """
data = torch.utils.data.TensorDataset(torch.randn(16000, 64), torch.randint(0, 8, (16000,)))
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, num_workers=2)
"""
_CONVOLUTIONS = """model = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
    nn.Flatten(), nn.Linear(32 * 16, 8)).to(device)
"""
_RECURRENT = """class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(8, 64, batch_first=True), nn.Linear(64, 8)

    def forward(self, x):
        return self.head(self.lstm(x.view(32, 8, 8))[0][:, -1])


model = Recurrent().to(device)
"""
_INFERENCE = """model.eval()
for step in range(400):
    with torch.inference_mode():
        x = torch.randn(32, 64).to(device)
        probabilities = model(x).softmax(-1)
        total = total + probabilities.amax()
"""


def edited(text: str, *edits: tuple[str, str]) -> str:
    """The text with each edit made, of a part that it has once."""
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


_MODEL = "model = nn.Sequential(*(Block(64) for _ in range(4)), nn.Linear(64, 8)).to(device)\n"
_BACKWARD = "    loss.backward()\n"
_OPTIMIZER = "optimizer = torch"
_STEP = "    optimizer.step()"
_LOOP = "for step in range(400):\n"
_DRAW = "    x, y = torch.randn(32, 64).to(device), torch.randint(0, 8, (32,)).to(device)\n"
_DROPOUT = "        return x + F.dropout(self.down(h), 0.1)"
SCRIPTS = {
    "plain": SCRIPT,
    "loader": edited(
        SCRIPT,
        (_LOOP, f"{_LOADER}for x, y in loader:\n    x, y = x.to(device), y.to(device)\n"),
    ),
    "unseeded": edited(
        SCRIPT,
        ("torch.manual_seed(0)\n", ""),
        (_LOOP, _LOOP + _DRAW),
        ("        return x + self.down(h)", _DROPOUT),
    ),
    "convolutions": edited(
        SCRIPT,
        (_MODEL, _CONVOLUTIONS),
        ("    out = model(x)", "    out = model(x.view(32, 1, 8, 8))"),
    ),
    "recurrent": edited(SCRIPT, (_MODEL, _RECURRENT)),
    "inference": SCRIPT[: SCRIPT.index(_LOOP)] + _INFERENCE,
}
# Every run of it compiles, so only regressions are planted there, and one check is unchanged.
_COMPILED = "compiled"
SCRIPTS[_COMPILED] = edited(SCRIPT, (_OPTIMIZER, f"model = torch.compile(model)\n{_OPTIMIZER}"))


@dataclass(frozen=True)
class Case:
    """One check. `slower_pct`: the current version waits for that share of the iteration, in the
    step. `exact`: a count shows the regression."""

    name: str
    script: str
    edit: Callable[[str], str] = lambda text: text
    busy: bool = False
    exact: bool = False
    slower_pct: float = 0.0
    compiled: bool = False  # how much slower it gets is not known
    quiet: bool = False  # unchanged, and its interval counts

    @property
    def options(self) -> tuple[str, ...]:
        timing = _LONG_TIMING if self.slower_pct or self.quiet else _TIMING
        return (*_OPTIONS, "--timing", str(timing))

    @property
    def unchanged(self) -> bool:
        return not (self.exact or self.slower_pct or self.compiled)

    def source(self, iteration_ms: float) -> str:
        """The current version of a script whose base version takes so long."""
        text = self.edit(SCRIPTS[self.script])
        if not self.slower_pct:
            return text
        wait_s = iteration_ms * self.slower_pct / 1e5
        spin = "    until = time.perf_counter() + {:.9f}\n"
        spin += "    while time.perf_counter() < until: pass\n"
        return "import time\n" + edited(text, (_BACKWARD, spin.format(wait_s) + _BACKWARD))


def _inserted(lines: str, before: str = _BACKWARD) -> Callable[[str], str]:
    return lambda text: edited(text, (before, lines + before))


def cases() -> list[Case]:
    """65 unchanged checks and 20 regressions, in the order in which they run."""
    found = [
        Case(f"unchanged-{script}-{'busy' if busy else 'quiet'}-{number}", script, busy=busy)
        for number in range(_REPEATS)
        for busy in (False, True)
        for script in SCRIPTS
        if script != _COMPILED
    ]
    found.append(Case(f"unchanged-{_COMPILED}-quiet-0", _COMPILED))
    found += [
        Case(
            f"exact-{name.replace(' ', '-')}",
            "plain",
            lambda text, known=known: edited(text, (known.old, known.new)),  # type: ignore[misc]
            exact=True,
        )
        for name, known in REGRESSIONS.items()
    ]
    exact = {
        "copy-to-host": ("unseeded", _inserted("    kept = loss.detach().cpu()\n")),
        "synchronize": ("loader", _inserted("    torch.cuda.synchronize()\n")),
        "copy-to-device": ("plain", _inserted("    weight = torch.ones(8).to(device)\n")),
        "clip": (
            "recurrent",
            _inserted("    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", _STEP),
        ),
        "casts": ("convolutions", _inserted("    loss = loss.double().float()\n")),
        "zeroed-gradients": (
            "plain",
            lambda text: edited(text, ("zero_grad()", "zero_grad(set_to_none=False)")),
        ),
        "not-compiled": (_COMPILED, lambda text: SCRIPT),
    }  # fmt: skip
    found += [Case(f"exact-{name}", *how, exact=True) for name, how in exact.items()]
    timed = ("plain", "unseeded", "recurrent", "convolutions")
    found += [Case(f"unchanged-{script}-timed", script, quiet=True) for script in timed]
    found += [Case(f"slower-10-{script}", script, slower_pct=10) for script in timed]
    found += [
        Case(f"slower-{percent}-{script}", script, slower_pct=percent)
        for script, percent in (("plain", 20), ("plain", 5), ("recurrent", 5))
    ]
    half = "model = nn.Sequential(*(torch.compile(b) if i < 2 else b for i, b in enumerate(model)))"
    found += [
        Case(
            "compiled-half", _COMPILED,
            lambda text: edited(text, ("model = torch.compile(model)", half)), compiled=True,
        ),
        Case(
            "compiled-graph-break", _COMPILED,
            _inserted("        torch._dynamo.graph_break()\n", "        h = F.gelu"), compiled=True,
        ),
    ]  # fmt: skip
    return found


@contextmanager
def busy_host(wanted: bool, beside: int = 1) -> Iterator[None]:
    """Meanwhile processes that work for a second and rest for one, one for each core that each of
    `beside` cases has."""
    processes = []
    if wanted:
        for _ in range(max((os.cpu_count() or 1) // beside, 1)):
            process = multiprocessing.get_context("spawn").Process(target=_work, daemon=True)
            process.start()
            processes.append(process)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _work() -> None:
    while True:
        until = time.perf_counter() + 1
        while time.perf_counter() < until:
            pass
        time.sleep(1)


def run(
    case: Case, place: Path, options: tuple[str, ...] | None = None, *, beside: int = 1,
    gpu: int = 0, gpus: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """The result of a case, which is also written to its file in `place`. `beside`: as many cases
    run at once, so that the host is busy with them, too, on as many `gpus`; `gpu`: the number of
    this one's."""
    timed = place / f"unchanged-{case.script}-timed.json"
    known = json.loads(timed.read_text()) if case.slower_pct else {}
    iteration_ms = known["iteration"]["base"] if known else 0.0
    with tempfile.TemporaryDirectory() as folder, busy_host(case.busy, beside):
        top = repository(Path(folder) / "project", {"train.py": SCRIPTS[case.script]})
        write(top, {"train.py": case.source(iteration_ms)})
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "launchscope", "check", "-q", *(options or case.options),
             "--against", "HEAD", "-o", "check.json", "train.py"],
            cwd=top, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
            env=os.environ | {"PYTHONPATH": _PYTHONPATH, "CUDA_VISIBLE_DEVICES": str(gpu)},
        )  # fmt: skip
        saved = top / "check.json"
        report = json.loads(saved.read_text()) if saved.exists() else {}
    runs = report.get("paired") or {}
    iteration = next((c for c in runs.get("changes", ()) if c["metric"] == "iteration_ms"), None)
    result = {
        "case": case.name,
        "exit_code": done.returncode,
        "seconds": round(time.monotonic() - start, 1),
        "at_once": beside,
        "gpus": gpus,
        "headline": report.get("headline"),
        "failed": [d["metric"] for d in report.get("limits", ()) if d["outcome"] == "failed"],
        "iteration": iteration,
        "pairs": runs.get("pairs"),
        "disturbed": runs.get("disturbed"),
        "environment": report.get("environment"),
        "stderr": done.stderr[-2000:] if done.returncode not in (0, 1) else "",
    }
    (place / f"{case.name}.json").write_text(json.dumps(result, indent=1))
    return result


def verdict(case: Case, result: dict[str, Any], half_pct: float | None) -> str:
    """ "fine", "wrong", or "open" where nothing is claimed. `half_pct`: of the interval of the
    unchanged script."""
    code = result["exit_code"]
    if code not in (0, 1):
        return "wrong"
    if case.unchanged:
        return "wrong" if code else "fine"
    if case.exact:
        return "fine" if code and set(result["failed"]) - {"iteration_ms"} else "wrong"
    if code:
        return "fine"
    claimed = case.slower_pct >= 10 and half_pct is not None and half_pct < _NARROW_PCT
    return "wrong" if claimed else "open"


def half_widths(results: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Of each script, half of the interval of its unchanged check in percent, timed as long as its
    slowdowns are."""
    found = {}
    for case in cases():
        change = results.get(case.name, {}).get("iteration") if case.quiet else None
        if change is not None and change["low"] is not None:
            assert results[case.name]["at_once"] <= results[case.name].get("gpus", 1), case.name
            found[case.script] = (change["high"] - change["low"]) / 2
    return found


def summary(place: Path) -> bool:
    """Print every result; whether none is wrong."""
    results = {
        case.name: json.loads((place / f"{case.name}.json").read_text())
        for case in cases()
        if (place / f"{case.name}.json").exists()
    }
    widths = half_widths(results)
    verdicts = {
        case.name: verdict(case, results[case.name], widths.get(case.script))
        for case in cases()
        if case.name in results
    }
    for name, found in verdicts.items():
        print(f"{found:6} {name:32} {results[name]['seconds']:7.1f} s  {results[name]['headline']}")
    for script, half in widths.items():
        print(f"half of the interval of {script}, unchanged: {half:.1f} %")
    values = list(verdicts.values())
    print(f"{len(values)} of {len(cases())} cases: ", end="")
    print(", ".join(f"{values.count(kind)} {kind}" for kind in ("fine", "open", "wrong")))
    return "wrong" not in values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], help="cases with one of these texts")
    parser.add_argument("--at-once", type=int, default=1, help="cases side by side")
    parser.add_argument("--gpus", type=int, nargs="+", default=[0], help="numbers of the GPUs used")
    parser.add_argument("--most", type=int, default=1000, help="run no more cases than these")
    parser.add_argument("--summary", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    left = [
        case
        for case in cases()
        if any(text in case.name for text in given.only)
        and not (given.folder / f"{case.name}.json").exists()
    ]
    free: queue.Queue[int] = queue.Queue()
    for number in range(given.at_once):
        free.put(given.gpus[number % len(given.gpus)])

    def one(case: Case) -> None:
        gpu = free.get()
        result = run(case, given.folder, beside=given.at_once, gpu=gpu, gpus=len(given.gpus))
        free.put(gpu)
        print(f"{case.name}: exit code {result['exit_code']}, {result['seconds']} s", flush=True)

    with ThreadPoolExecutor(given.at_once) as workers:
        list(workers.map(one, [] if given.summary else left[: given.most]))
    sys.exit(0 if summary(given.folder) else 1)


if __name__ == "__main__":
    main()
