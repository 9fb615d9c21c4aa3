"""Readers of live pages: `python -m benchmarks.page_readers ADDRESS PAGE …` reads each page's event
stream until its input ends. Prints "open" when all streams are open."""

from __future__ import annotations

import asyncio
import os
import sys
from urllib.parse import quote


async def read_page(host: str, port: int, page: str, opened: asyncio.Semaphore) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    request = f"GET /live?view={quote(page, safe='')} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
    writer.write(request.encode())
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0]:
            raise ConnectionError(f"{page}: {head.decode()}")
        opened.release()
        while await reader.read(1 << 20):
            pass
    finally:
        writer.close()


async def main(address: str, pages: list[str]) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    opened = asyncio.Semaphore(0)
    looks = [asyncio.create_task(read_page(host, int(port), page, opened)) for page in pages]
    for _ in pages:
        await opened.acquire()
    print('{"event": "open"}', flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for one in looks:
        one.cancel()
    await asyncio.gather(*looks, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
    sys.stdout.flush()
    os._exit(0)
