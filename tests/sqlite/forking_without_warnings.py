"""A program that uses the library, forks, and uses it on both sides: for ``-X dev``."""

import asyncio
import gc
import multiprocessing
import os
import sys

from forge_jobs import Forge, JobQueue, ResultTimeout

url, mode = sys.argv[1:]
forge = Forge(url)
queue = JobQueue.open(url, table="pulled")


@forge.task(queue="q")
def double(number: int) -> int:
    return 2 * number


def use() -> None:
    handle = double.enqueue(number=1)
    try:
        handle.result(timeout=0.05)
    except ResultTimeout:
        handle.cancel()
    asyncio.run(use_in_loop())
    queue.enqueue("double", {"number": 1})
    job = queue.dequeue()
    assert job is not None
    queue.complete(job)
    gc.collect()


async def use_in_loop() -> None:
    handle = await double.aenqueue(number=2)
    try:
        await handle.aresult(timeout=0.05)
    except ResultTimeout:
        await handle.acancel()


def in_child() -> None:
    if mode == "unused":
        return
    use()
    if mode == "closed":
        forge.close()
        queue.close()
    gc.collect()


use()
if mode == "multiprocessing":
    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join()
    assert child.exitcode == 0
else:
    pid = os.fork()
    if pid == 0:
        in_child()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
use()
forge.close()
queue.close()
gc.collect()
