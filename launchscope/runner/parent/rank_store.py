"""What ranks tell one another, in a TCPStore of torch.

torch's launcher hosts it, or the launchscope of rank 0. No operation waits for another rank.
"""

from __future__ import annotations

import contextlib
import zlib
from datetime import timedelta
from typing import Any

from launchscope.errors import MeasureError
from launchscope.runner.parent.rank_place import RankPlace

_START = timedelta(seconds=300)  # within which every rank starts


class RankStore:
    """What each rank has put under a key. Once the process that hosts the store is gone, nothing
    is there."""

    def __init__(self, place: RankPlace):
        self._rank = place.rank
        self._store: Any = _store(place)

    @property
    def is_gone(self) -> bool:
        return self._store is None

    def put(self, key: str, content: bytes = b"") -> None:
        """Compressed, because the store refuses more than 8 MiB."""
        self._ask("set", f"{key}/{self._rank}", zlib.compress(content))

    def has(self, key: str, rank: int) -> bool:
        return bool(self._ask("check", [f"{key}/{rank}"]))

    def get(self, key: str, rank: int) -> bytes | None:
        """What the rank has put there; None if nothing."""
        content = self._ask("get", f"{key}/{rank}") if self.has(key, rank) else None
        return None if content is None else zlib.decompress(content)

    def close(self) -> None:
        self._store = None

    def _ask(self, operation: str, *arguments: Any) -> Any:
        store = self._store
        if store is not None:
            with contextlib.suppress(RuntimeError):
                return getattr(store, operation)(*arguments)
        self._store = None
        return None


def _store(place: RankPlace) -> Any:
    host, port = place.address
    opens = place.rank == 0 and not place.hosted
    try:
        import torch

        distributed: Any = torch.distributed
        store = distributed.TCPStore(host, port, None, opens, _START, wait_for_workers=False)
        return distributed.PrefixStore(f"launchscope/{place.attempt}", store)
    except (ImportError, RuntimeError) as error:
        raise MeasureError(
            f"the ranks cannot meet at {host}:{port}: {str(error).splitlines()[0]}",
            hint="MASTER_ADDR and MASTER_PORT name the node of rank 0 and a free port of it",
        ) from None
