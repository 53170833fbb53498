"""Which rank of which distributed run this process is, from the variables of its launcher."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class RankPlace(Struct, frozen=True):
    """One rank of `world_size`. The ranks meet in a store at `address`, which torch's launcher
    hosts (`hosted`), or the launchscope of rank 0. `attempt` differs after its restart."""

    rank: int
    world_size: int
    address: tuple[str, int]
    hosted: bool = False
    attempt: str = "0"
    on_one_node: bool = True


def rank_place(environ: Mapping[str, str]) -> RankPlace | None:
    """The place of this process, which torchrun, `accelerate launch` or `deepspeed` has started;
    None where it runs alone."""
    rank, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    host, port = environ.get("MASTER_ADDR"), _number(environ, "MASTER_PORT")
    # Other programs use the first two names, too.
    if rank is None or size is None or not (size > 1 and rank < size and host and port):
        return None
    local = [_number(environ, name) for name in ("LOCAL_WORLD_SIZE", "LOCAL_SIZE")]
    return RankPlace(
        rank,
        size,
        (host, port),
        hosted=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=environ.get("TORCHELASTIC_RESTART_COUNT", "0"),
        on_one_node=size in local,
    )


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None
