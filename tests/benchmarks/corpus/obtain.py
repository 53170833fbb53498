"""Obtain the scripts of the sample: of each repository, at its commit, only what its scripts need.

`python -m tests.benchmarks.corpus.obtain FOLDER` clones into FOLDER/.repositories and writes
FOLDER/OWNER+NAME. `--list fresh` obtains those of `fresh.json`.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks.foreign.obtain import clone, finish, git, reason_of


class Repository(NamedTuple):
    """`paths` are pathspecs of git."""

    name: str
    commit: str
    paths: Sequence[str]


LISTS = ("sample", "fresh")


def stored(name: str = "sample") -> Any:
    """A committed list of scripts."""
    return json.loads((Path(__file__).parent / f"{name}.json").read_text())


def repositories(name: str = "sample") -> list[Repository]:
    return [
        Repository(repository, each["commit"], each["paths"])
        for repository, each in stored(name)["repositories"].items()
    ]


def place(folder: Path, name: str) -> Path:
    return folder / name.replace("/", "+")


def obtain(repository: Repository, folder: Path) -> str | None:
    """Write the files of the repository into the folder. Returns why they could not be had."""
    target = place(folder, repository.name)
    if target.exists():
        return None
    try:
        source = clone(repository.name, folder / ".repositories")
        files = git(source, "archive", "--format=tar", repository.commit, *repository.paths)
    except (OSError, subprocess.CalledProcessError) as error:
        return reason_of(error)
    part = target.with_name(target.name + ".part")
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(part, filter="data")
    part.rename(target)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--list", choices=LISTS, default="sample", help="of scripts")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    wanted = repositories(arguments.list)
    finish({each.name: obtain(each, arguments.folder) for each in wanted}, "repositories")


if __name__ == "__main__":
    main()
