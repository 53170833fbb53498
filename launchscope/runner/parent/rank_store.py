"""What ranks tell one another, in a TCPStore of torch.

torch's launcher hosts it, or the launchscope of rank 0. No operation waits for another rank.
"""

from __future__ import annotations

import contextlib
import socket
import time
import zlib
from datetime import timedelta
from typing import Any

from launchscope.errors import MeasureError
from launchscope.runner.parent.rank_place import RankPlace

START_S = 300.0  # within which every rank starts
_POLL_S = 0.05


class RankStore:
    """Once the process that hosts the store is gone, nothing is there."""

    def __init__(self, place: RankPlace):
        self._store: Any = _store(place)

    @property
    def is_gone(self) -> bool:
        return self._store is None

    def put(self, key: str, content: bytes = b"") -> None:
        """Compressed, because the store refuses more than 8 MiB."""
        self._ask("set", key, zlib.compress(content))

    def has(self, key: str) -> bool:
        return bool(self._ask("check", [key]))

    def get(self, key: str) -> bytes | None:
        """What was put there; None if nothing was."""
        content = self._ask("get", key) if self.has(key) else None
        return None if content is None else zlib.decompress(content)

    def count(self, key: str, more: int = 0) -> int:
        """How often something happened, `more` times since."""
        return int(self._ask("add", key, more) or 0)

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
    if place.address is None:
        raise MeasureError(
            f"nothing says where the {place.world_size:,} ranks meet",
            hint="set MASTER_ADDR to the first node, as `scontrol show hostnames` prints it, and "
            "MASTER_PORT to a free port",
        )
    host, port = place.address
    opens = place.rank == 0 and not place.hosted
    try:
        import torch

        distributed: Any = torch.distributed
        if not opens:
            _wait_for_port(host, port)
        limit = timedelta(seconds=60)
        store = distributed.TCPStore(host, port, None, opens, limit, wait_for_workers=False)
        return distributed.PrefixStore(f"launchscope/{place.attempt}", store)
    except (ImportError, RuntimeError, OSError) as error:
        raise MeasureError(
            f"the ranks cannot meet at {host}:{port}: {str(error).splitlines()[0]}",
            hint="MASTER_ADDR and MASTER_PORT name the node of rank 0 and a free port of it",
        ) from None


def _wait_for_port(host: str, port: int) -> None:
    """Until it is open. The store would wait as well, but Ctrl-C could not end that."""
    give_up = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((host, port), 5.0).close()
            return
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(_POLL_S)
