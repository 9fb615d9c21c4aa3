"""A program for a worker pool, in Python: pretends to resize pictures."""

import json
import sys


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def resize(job_id: str, width: int, height: int, to: int) -> dict[str, int]:
    say(id=job_id, progress=0.5, note="half of the pixels")
    return {"width": to, "height": height * to // width}


say(ready=True)
for line in sys.stdin:
    request = json.loads(line)
    job_id, payload = request["id"], request["payload"]
    try:
        say(id=job_id, status="ok", result=resize(job_id, **payload))
    except TypeError as error:
        say(id=job_id, status="dead", message=f"a job this program cannot do: {error}")
    except Exception as error:
        print(f"failed: {error!r}", file=sys.stderr)
        say(id=job_id, status="error", message=str(error))
