"""What the benchmarks share: the environment, spreads, the output."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pandas

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of repeated measurements, with the measurements themselves."""

    median: float
    low: float
    high: float
    samples: tuple[float, ...]

    @classmethod
    def of(cls, samples: list[float]) -> Spread:
        low, _, high = quantiles(samples, n=4, method="inclusive") if samples[1:] else samples * 3
        return cls(median(samples), low, high, tuple(samples))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


def interval(values: list[float]) -> Spread:
    """Median with its 95 % interval from order statistics (binomial, normal approximation).

    The values themselves are not kept.
    """
    ordered = sorted(values)
    reach = 0.98 * math.sqrt(len(ordered))
    low = max(0, math.floor(len(ordered) / 2 - reach))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + reach))
    return Spread(median(ordered), ordered[low], ordered[high], ())


def parser(description: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--output", type=Path, help="also write the result here, as JSON")
    return made


def child_environment() -> dict[str, str]:
    """Children import launchscope from this checkout, installed or not, and leave the last run of
    the person as it is. As in an installed package, they find compiled modules after the first."""
    path = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    made = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "LAUNCHSCOPE_NO_CACHE": "1"}
    made.pop("PYTHONDONTWRITEBYTECODE", None)
    return made


def run(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `python <command>` in `folder`; a failure ends the benchmark with the child's words."""
    result = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=folder,
        env=child_environment(),
        stdin=subprocess.DEVNULL,
    )
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr}")
    return result


def cuda_available() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def environment() -> dict[str, str | None]:
    import torch

    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "date": datetime.now(timezone.utc).date().isoformat(),
    }


def finish(name: str, goal: str, results: list[dict[str, Any]], output: Path | None) -> None:
    """Writes the JSON, if wanted. `results` may hold Spread values."""
    if output is None:
        return
    rows = [
        {key: asdict(value) if isinstance(value, Spread) else value for key, value in row.items()}
        for row in results
    ]
    document = {"benchmark": name, "goal": goal, "environment": environment(), "results": rows}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {output}")


def show(rows: list[dict[str, Any]]) -> None:
    """Prints the rows as a table."""
    print(pandas.DataFrame(rows).fillna("").to_string(index=False, float_format="{:.2f}".format))


def markdown(header: list[str], rows: Iterable[list[str]]) -> list[str]:
    """The lines of a table."""
    return ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
