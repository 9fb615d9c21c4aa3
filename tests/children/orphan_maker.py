"""A parent for the tests: starts one child, says its pid and that of its grandchild, and waits."""

import asyncio
import sys
from pathlib import Path

from forge_jobs.kit.children.line_child import LineChild

CHILD = Path(__file__).with_name("plain_child.py")


async def main(last_words: str) -> None:
    child = await LineChild.start([sys.executable, str(CHILD)], on_output=print)
    await child.receive()
    await child.send(b"grandchild")
    grandchild = await child.receive()
    if last_words:
        await child.send(last_words.encode())
        if last_words == "hold":
            await child.receive()
    print(child.pid, (grandchild or b"").decode(), flush=True)
    await asyncio.sleep(300)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
