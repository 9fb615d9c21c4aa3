"""A parent process for tests: starts a child, prints both pids (child, grandchild), and waits."""

import asyncio
import sys
from pathlib import Path

from forge_jobs.kit.children.line_child import LineChild

CHILD = Path(__file__).with_name("plain_child.py")


async def main(last_line: str) -> None:
    child = await LineChild.start([sys.executable, str(CHILD)], on_output=print)
    await child.receive()
    await child.send(b"grandchild")
    grandchild = await child.receive()
    if last_line:
        await child.send(last_line.encode())
        if last_line == "hold":
            await child.receive()
    print(child.pid, (grandchild or b"").decode(), flush=True)
    await asyncio.sleep(300)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
