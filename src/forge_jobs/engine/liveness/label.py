"""The name of a worker process for people."""

import hashlib


def worker_label(
    host_id: str,
    *,
    prefix: str | None,
    version: str | None,
    worker_id: str | None,
    hostname: str,
    pid: int,
) -> str:
    """``{prefix}-worker-{version}-{id}``; without a prefix the id, else machine and process.

    >>> worker_label("01H", prefix="shop", version="1.4", worker_id="a", hostname="h", pid=7)
    'shop-worker-1.4-a'
    >>> worker_label("01H", prefix=None, version="1.4", worker_id=None, hostname="web-1", pid=7)
    'web-1-7'
    """
    if not prefix:
        return worker_id or f"{hostname}-{pid}"
    number = worker_id or hashlib.sha256(host_id.encode()).hexdigest()[:4]
    return "-".join(filter(None, (prefix, "worker", version, number)))
