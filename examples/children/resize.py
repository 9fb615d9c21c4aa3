"""A program for a worker pool, in Python: pretends to resize pictures."""

import json
import sys


def send(**line: object) -> None:
    print(json.dumps(line), flush=True)


def resize(job_id: str, width: int, height: int, to: int) -> dict[str, int]:
    send(id=job_id, progress=0.5, note="half of the pixels")
    return {"width": to, "height": height * to // width}


send(ready=True)
for line in sys.stdin:
    request = json.loads(line)
    job_id, payload = request["id"], request["payload"]
    try:
        send(id=job_id, status="ok", result=resize(job_id, **payload))
    except TypeError as error:
        send(id=job_id, status="dead", message=f"a job this program cannot do: {error}")
    except Exception as error:
        print(f"failed: {error!r}", file=sys.stderr)
        send(id=job_id, status="error", message=str(error))
