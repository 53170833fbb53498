"""Obtain the traces of the sample with plain git, and check that they are the same files.

`python -m tests.benchmarks.foreign.obtain FOLDER` clones each repository once, without its files,
into FOLDER/.repositories and takes one file at a time from its commit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn


class Trace(NamedTuple):
    """One file of the sample, as `sample.json` names it."""

    file: str
    repository: str
    commit: str
    path: str
    sha256: str


def sample() -> list[Trace]:
    traces = json.loads((Path(__file__).parent / "sample.json").read_text())["traces"]
    return [Trace(*(trace[name] for name in Trace._fields)) for trace in traces]


def git(repository: Path, *arguments: str) -> bytes:
    """What git prints. Raises CalledProcessError with its complaint."""
    return subprocess.run(
        ["git", "-C", str(repository), *arguments], check=True, capture_output=True
    ).stdout


def clone(name: str, cache: Path) -> Path:
    """The repository without its files: git fetches each one when it is asked for."""
    target = cache / name.replace("/", "+")
    if not target.exists():
        cache.mkdir(parents=True, exist_ok=True)
        address = f"https://github.com/{name}"
        git(cache, "clone", "--quiet", "--filter=blob:none", "--no-checkout", address, str(target))
    return target


def content(trace: Trace, folder: Path) -> bytes:
    repository = clone(trace.repository, folder / ".repositories")
    if subprocess.run(
        ["git", "-C", str(repository), "cat-file", "-e", trace.commit], capture_output=True
    ).returncode:
        git(repository, "fetch", "--quiet", "--filter=blob:none", "origin", trace.commit)
    return git(repository, "show", f"{trace.commit}:{trace.path}")


def obtain(trace: Trace, folder: Path) -> str | None:
    """Write the file into the folder. Returns why it could not be had, or None."""
    target = folder / trace.file
    try:
        data = target.read_bytes() if target.exists() else content(trace, folder)
    except (OSError, subprocess.CalledProcessError) as error:
        return reason_of(error)
    if hashlib.sha256(data).hexdigest() != trace.sha256:
        return "the file is not the one that was judged: its sha256 differs"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return None


def reason_of(error: Exception) -> str:
    said = getattr(error, "stderr", b"") or str(error).encode()
    return str(said.decode(errors="replace").strip().splitlines()[-1])


def finish(reasons: Mapping[str, str | None], what: str) -> NoReturn:
    """Say what could not be had, by name, and end."""
    missing = {name: why for name, why in reasons.items() if why is not None}
    for name, why in missing.items():
        print(f"missing: {name}: {why}")
    print(f"{len(reasons) - len(missing)} of {len(reasons)} {what}")
    raise SystemExit(bool(missing))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    finish({trace.file: obtain(trace, folder) for trace in sample()}, "traces")


if __name__ == "__main__":
    main()
