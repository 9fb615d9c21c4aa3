"""A receiver of webhooks: checks the signature, stores a job, answers at once.

Run: python examples/webhooks/webhooks.py
"""

import asyncio
import hashlib
import hmac
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from forge_jobs import Context, Forge, Retry, StoreError

forge = Forge()
SECRET = os.environ.get("WEBHOOK_SECRET", "a secret of both sides").encode()
balances: dict[str, int] = {}


@forge.task(queue="webhooks", max_attempts=10, retry=Retry(base="10s", max="1h"))
def handle(event: str, account: str, cents: int, ctx: Context) -> int:
    """Events of one account run in the order in which they came: see the lane below."""
    balances[account] = balances.get(account, 0) + (cents if event == "paid" else -cents)
    return balances[account]


def sign(body: bytes) -> str:
    return hmac.new(SECRET, body, hashlib.sha256).hexdigest()


def receive(headers: dict[str, str], body: bytes) -> tuple[int, str]:
    """The answer to a delivery: its status and text. Nothing slow happens here."""
    if not hmac.compare_digest(headers.get("x-signature", ""), sign(body)):
        return 401, "wrong signature"
    event = json.loads(body)
    chosen = handle.using(
        dedupe_key=event["id"],  # the sender repeats what it is not sure about
        dedupe_for="3d",
        lane=event["account"],
        order="strict",
    )
    try:
        job = chosen.enqueue(event["type"], event["account"], event["cents"])
    except StoreError:
        return 503, "try again later"  # not stored: the sender repeats it
    return 200, "known already" if job.duplicate else "stored"


class Receiver(BaseHTTPRequestHandler):
    """``receive`` behind the standard library's server; a web framework does the same."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, text = receive({name.lower(): value for name, value in self.headers.items()}, body)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None: ...


def deliver(address: str, event: dict[str, object], signature: str | None = None) -> str:
    """What the sender does."""
    body = json.dumps(event).encode()
    request = Request(address, body, {"X-Signature": signature or sign(body)})
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.read().decode()
    except HTTPError as error:
        return f"{error.code} {error.read().decode()}"


async def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    paid = {"id": "evt_1", "type": "paid", "account": "ada", "cents": 500}
    refunded = {"id": "evt_2", "type": "refunded", "account": "ada", "cents": 200}
    for event in (paid, paid, refunded):
        print(event["id"], await asyncio.to_thread(deliver, address, event))
    print("evt_3", await asyncio.to_thread(deliver, address, {**paid, "id": "evt_3"}, "forged"))
    async with forge.worker(["webhooks"]):
        while forge.jobs(status=["pending", "held", "running"]).count():
            await asyncio.sleep(0.05)
    print(balances)
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    asyncio.run(main())
