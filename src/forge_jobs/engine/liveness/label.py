"""The name of a worker process for people."""

import hashlib


def worker_label(
    host_id: str, *, prefix: str | None, version: str | None, worker_id: str | None
) -> str:
    """``{prefix}-worker-{version}-{id}``; without a prefix the host_id itself.

    >>> worker_label("01H", prefix="shop", version="1.4", worker_id="a")
    'shop-worker-1.4-a'
    """
    if not prefix:
        return host_id
    number = worker_id or hashlib.sha256(host_id.encode()).hexdigest()[:4]
    return "-".join(filter(None, (prefix, "worker", version, number)))
