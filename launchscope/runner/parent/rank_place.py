"""Which rank of which distributed run this process is, from the variables of its launcher."""

from __future__ import annotations

from collections.abc import Mapping

from launchscope.frozen import dataclass

# By launcher: variables of the rank and of the number of ranks, and those that equal a number where
# all ranks are on one node. The first launcher whose rank and size are numbers counts.
_LAUNCHERS = (
    ("RANK", "WORLD_SIZE", ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ()),
)


@dataclass(frozen=True)
class RankPlace:
    """One rank of `world_size`. The ranks meet in a store at `address`, which torch's launcher
    hosts (`hosted`), or the launchscope of rank 0. `attempt` differs after its restart."""

    rank: int
    world_size: int
    address: tuple[str, int] | None
    hosted: bool = False
    attempt: str = "0"
    on_one_node: bool = True


def rank_place(environ: Mapping[str, str]) -> RankPlace | None:
    """The place of this process; None where it runs alone. torchrun, `accelerate launch` and
    `deepspeed` set RANK and where to meet, `srun` variables of its own."""
    host, port = environ.get("MASTER_ADDR"), _number(environ, "MASTER_PORT")
    address = (host, port) if host and port else None
    for of_rank, of_size, of_node in _LAUNCHERS:
        rank, size = _number(environ, of_rank), _number(environ, of_size)
        if rank is None or size is None or not (size > 1 and rank < size):
            continue
        of_slurm = not of_node
        if not (host or of_slurm):  # other programs use these names, too
            continue
        on_one_node = any(_number(environ, local) == size for local in of_node)
        if of_slurm:
            on_one_node = _number(environ, "SLURM_STEP_NUM_NODES") == 1
        hosted = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        attempt = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return RankPlace(rank, size, address, hosted, attempt, on_one_node)
    return None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else None
