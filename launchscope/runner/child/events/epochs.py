"""Foresees the smaller last batch of an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from launchscope.model import LastBatch, TensorShape
from launchscope.runner.child.facts.torch_types import Torch, Value


class Epochs:
    """The epochs of the data loaders that the script fetches from."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self.last_batch: LastBatch | None = None  # of the loader that gave the last batch

    def fetched(self, iterator: Value) -> None:
        """The iterator of a data loader has given a batch."""
        self.last_batch = None
        batches = iterator._index_sampler
        if type(batches) is not self._torch.utils.data.BatchSampler or batches.drop_last:
            return
        try:
            samples = len(batches.sampler)
        except Exception:  # the script's own sampler or dataset; many have no length
            return
        if samples > batches.batch_size and samples % batches.batch_size:
            self.last_batch = LastBatch(samples, batches.batch_size)


def is_last_batch(
    last: LastBatch, usual: Iterable[TensorShape], inputs: Iterable[TensorShape]
) -> bool:
    """Whether these inputs are those of a `usual` step but for the fewer samples."""
    ours, theirs = Counter(usual), Counter(inputs)
    pairs = [
        sorted((left - right).elements(), key=lambda t: (len(t.dims), t.dtype, t.dims))
        for left, right in ((ours, theirs), (theirs, ours))
    ]
    if not pairs[0] or len(pairs[0]) != len(pairs[1]):
        return False
    return all(
        (len(a.dims), a.dtype) == (len(b.dims), b.dtype)
        and all(m == n or m * last.size == n * last.batch_size for m, n in zip(a.dims, b.dims))
        for a, b in zip(*pairs)
    )
