"""Scripts whose threads and tasks wait for one another: the end of one must not hang the rest."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from launchscope.runner.child.shutdown import deadlock
from tests.runner.children import Batch, launchscope

NET = """
import asyncio, queue, threading, torch
from concurrent.futures import ThreadPoolExecutor
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
"""
TRAIN = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def train(x):
    loss = net(x).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
SCRIPTS = {
    "a_thread_serves": """
asked = queue.Queue(8)
def serve():
    with torch.inference_mode():
        while True:
            net(asked.get())
            asked.task_done()
threading.Thread(target=serve, daemon=True).start()
for _ in range(200): asked.put(torch.randn(1, 4))
asked.join()
""",
    "a_thread_feeds": TRAIN
    + """
batches = queue.Queue(4)
def feed():
    for _ in range(200): batches.put(torch.randn(2, 4))
    batches.put(None)
thread = threading.Thread(target=feed)
thread.start()
while (x := batches.get()) is not None: train(x)
thread.join()
""",
    "a_task_serves": """
async def main():
    asked = asyncio.Queue(4)
    async def serve():
        with torch.inference_mode():
            while True:
                net(await asked.get())
                asked.task_done()
    task = asyncio.create_task(serve())
    for _ in range(200): await asked.put(torch.randn(1, 4))
    await asked.join()
    task.cancel()
asyncio.run(main())
""",
    "nobody_joins": TRAIN
    + """
def work():
    for _ in range(60): train(torch.randn(2, 4))
threading.Thread(target=work).start()
""",
}


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("waiting")
    running = Batch(
        {name: partial(launchscope, folder / name, NET + code) for name, code in SCRIPTS.items()}
    )
    yield running
    running.close()


@pytest.mark.child
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_script_ends_once_everything_is_measured(batch: Batch, name: str) -> None:
    said = batch[name]
    assert said.code == 0, said.err
    assert "device operations per step" in said.out
    assert "did not end by itself" not in re.sub(r"\s+", " ", said.out + said.err)
    assert "Traceback" not in said.err


def test_a_thread_that_works_does_not_count_as_waiting() -> None:
    done = threading.Event()

    def works() -> None:
        while not done.is_set():
            sum(range(1000))

    worker = threading.Thread(target=works)
    worker.start()
    try:
        assert not deadlock._all_wait()
    finally:
        done.set()
        worker.join()
