"""Which rank of which distributed run this process is, from the variables of its launcher."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from launchscope.frozen import dataclass
from launchscope.host import working_directory

FOLDER_VARIABLE = "LAUNCHSCOPE_RANKS"
TEMPORARY = "launchscope-ranks-"  # how folders that nobody named begin
# By launcher: variables of the rank, of the number of ranks, and of how many are on this node. The
# first whose rank and size are numbers counts. Lightning names the rank on its node only.
_LAUNCHERS = (
    ("torch", "RANK", "WORLD_SIZE", ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")),
    ("lightning", "LOCAL_RANK", "WORLD_SIZE", ("LOCAL_WORLD_SIZE",)),
    ("slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ()),
)
# What all processes of a run have in common, and the next run has not.
_OF_A_RUN = (
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT",
    "SLURM_JOB_ID", "SLURM_STEP_ID",
)  # fmt: skip


@dataclass(frozen=True)
class RankPlace:
    """One rank of `world_size`; `folder` is where all of them meet, the same for each."""

    rank: int
    world_size: int
    folder: Path
    on_one_node: bool


def rank_place(environ: Mapping[str, str]) -> RankPlace | None:
    """The place of this process; None where it runs alone. torchrun, `accelerate launch` and
    `deepspeed` set RANK, Lightning LOCAL_RANK and NODE_RANK, and `srun` variables of its own."""
    for name, of_rank, of_size, of_node in _LAUNCHERS:
        rank, size = _number(environ, of_rank), _number(environ, of_size)
        if rank is None or size is None or not (size > 1 and rank < size):
            continue
        # Other programs use these names too, but not without an address to meet at.
        if name != "slurm" and not environ.get("MASTER_ADDR"):
            continue
        if name == "lightning" and _number(environ, "NODE_RANK"):
            continue  # not on the first node, whose ranks are those of the run
        nodes = _number(environ, "SLURM_STEP_NUM_NODES") if name == "slurm" else None
        alone = nodes == 1 or any(_number(environ, local) == size for local in of_node)
        return RankPlace(rank, size, _folder(environ, alone), alone)
    return None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _folder(environ: Mapping[str, str], on_one_node: bool) -> Path:
    """Where all ranks meet. Several nodes share no temporary folder, but mostly the working
    directory."""
    named = environ.get(FOLDER_VARIABLE)
    parts = [environ.get(name, "") for name in _OF_A_RUN]
    if on_one_node and not environ.get("SLURM_STEP_ID"):
        # Runs one after another may use the same port: the process that starts the ranks is new.
        errors = environ.get("TORCHELASTIC_ERROR_FILE", "")
        parts.append(str(Path(errors).parents[1]) if errors.count(os.sep) > 2 else _parent())
    key = hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:12]
    if named:
        return Path(named, f"run-{key}")
    if on_one_node:
        return Path(tempfile.gettempdir(), f"{TEMPORARY}{os.getuid()}-{key}")
    return Path(working_directory(), f".launchscope-ranks-{key}")


def _parent() -> str:
    """The process that started this one, and when it began."""
    began = ""
    with contextlib.suppress(OSError, IndexError):
        stat = Path(f"/proc/{os.getppid()}/stat").read_text(errors="replace")
        began = stat.rpartition(")")[2].split()[19]
    return f"{os.getppid()} {began}"
