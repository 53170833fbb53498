"""What a Kineto file says, by json and loops alone: shares no code with launchscope."""

import gzip
import json
from decimal import Decimal
from pathlib import Path


def oracle(path: Path) -> tuple[int, int, int]:
    """Kernel launches, GPU-busy ns and idle ns between the first launch and the last end."""
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    work: list[tuple[int, int, int]] = []
    called, kernels = dict[int, int](), set[int]()
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            identity = event["args"].get("correlation", -1)
            begin = int(Decimal(event["ts"]) * 1000)
            called[identity] = min(called.get(identity, begin), begin)
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            begin, ns = (int(Decimal(event[key]) * 1000) for key in ("ts", "dur"))
            work.append((begin, begin + ns, event["args"]["correlation"]))
            kernels |= {event["args"]["correlation"]} if event["cat"] == "kernel" else set()
    reached = {identity for _, _, identity in work}
    first = min([time for i, time in called.items() if i in reached] + [b for b, _, _ in work])
    busy, through = 0, first
    for begin, end, _ in sorted(work):
        busy += max(0, end - max(begin, through))
        through = max(through, end)
    return len(kernels & called.keys()), busy, through - first - busy
