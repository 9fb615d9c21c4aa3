"""A worker learns of the death of its parent, whatever the parent had not read."""

import asyncio
import socket

import pytest

from forge_jobs.cli.worker_link import WorkerLink


@pytest.mark.parametrize("unread", [False, True])
async def test_r9_a_parent_that_dies_is_noticed(unread: bool) -> None:
    parent, child = socket.socketpair()
    link = WorkerLink(child.detach())
    if unread:
        # The kernel then reports a reset instead of an end of file.
        link.report_started("HOST")
    seen: list[bool] = []
    listening = asyncio.create_task(link.listen(seen.append))
    await asyncio.sleep(0.05)
    parent.close()
    async with asyncio.timeout(10):
        await listening
    assert seen == [True]
    link.close()
