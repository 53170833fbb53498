"""Foresees the smaller last batch of an epoch, from what torch's data loader and samplers hold."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from types import GeneratorType

from launchscope.model import LastBatch, TensorShape
from launchscope.runner.child.plain_values import loaded_torch
from launchscope.runner.child.torch_types import Value

# What `iter()` of a list and of a range gives.
_ITERATORS: tuple[type, ...] = (type(iter([])), type(iter(range(0))))


class Epochs:
    """The epochs of the data loaders that the script fetches from."""

    def __init__(self) -> None:
        self.last_batch: LastBatch | None = None  # of the loader that gave the last batch
        self._samples: weakref.WeakKeyDictionary[Value, int] = weakref.WeakKeyDictionary()

    def fetched(self, iterator: Value) -> None:
        """The iterator of a data loader has given a batch."""
        loader, self.last_batch = vars(iterator), None
        batches = loader.get("_index_sampler")
        if type(batches) is not loaded_torch().utils.data.BatchSampler:
            return
        own = vars(batches)
        # With workers the iterator may be far ahead, and at its end already.
        samples = self._samples.get(batches) or _samples(loader.get("_sampler_iter"))
        size = own.get("batch_size")
        if samples is None or type(size) is not int or own.get("drop_last") is not False:
            return
        self._samples[batches] = samples
        if samples > size and samples % size:
            self.last_batch = LastBatch(samples, size)


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


def _samples(batches: Value) -> int | None:
    """How many samples an epoch has. The dataset is not asked: torch's sampler has done so, and its
    suspended iterator holds the answer."""
    data = loaded_torch().utils.data
    names = _names(batches, data.BatchSampler)
    indices = None if names is None else names.get("sampler_iter")
    while type(indices) is GeneratorType:
        if (names := _names(indices, data.RandomSampler)) is not None:
            drawn = getattr(names["self"], "_num_samples", None)
            drawn = names.get("n") if drawn is None else drawn
            return drawn if type(drawn) is int else None
        if (names := _names(indices, data.SubsetRandomSampler)) is not None:
            found = getattr(names["self"], "indices", None)
            return len(found) if type(found) is list or type(found) is range else None
        indices = indices.gi_yieldfrom
    if indices is None or type(indices) not in _ITERATORS:
        return None
    whole: Value = indices.__reduce__()[1][0]
    return (whole.stop if type(whole) is range else list.__len__(whole)) or None


def _names(generator: Value, sampler: Value) -> dict[str, Value] | None:
    """The variables of a suspended iterator of this class of torch; None of any other one."""
    if type(generator) is not GeneratorType or generator.gi_frame is None:
        return None
    ours = generator.gi_code is sampler.__iter__.__code__
    return dict(generator.gi_frame.f_locals) if ours else None
