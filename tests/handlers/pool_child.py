"""A program for the tests of the worker pool: does what the payload says."""

import json
import os
import signal
import sys
import time

held: list[bytes] = []


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def answer(job: str, payload: dict[str, object]) -> None:
    act = payload.get("act", "pid")
    match act:
        case "pid":
            say(id=job, status="ok", result=os.getpid())
        case "env":
            say(id=job, status="ok", result=dict(os.environ))
        case "sleep":
            time.sleep(float(str(payload["s"])))
            say(id=job, status="ok", result=os.getpid())
        case "grow":
            held.append(b"x" * (int(str(payload["mb"])) << 20))
            say(id=job, status="ok", result=os.getpid())
        case "talk":
            print("on stderr", file=sys.stderr, flush=True)
            say(id=job, progress=0.25, note="a quarter")
            say(id=job, log="a line of its own")
            say(id=job, progress=0.75)
            time.sleep(0.1)
            say(id=job, status="ok", result={"text": "ä\n✓"})
        case "reply":
            say(**{"id": job, **payload["reply"]})  # type: ignore[dict-item]
        case "size":
            say(id=job, status="ok", result=len(str(payload["text"])))
        case "big":
            say(id=job, status="ok", result="x" * int(str(payload["bytes"])))
        case _:
            misbehave(job, str(act))


def misbehave(job: str, act: str) -> None:
    match act:
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(120)
        case "die":
            print("about to die", file=sys.stderr, flush=True)
            os._exit(7)
        case "garbage":
            print("Traceback: this is not JSON", flush=True)
            time.sleep(60)
        case "not-a-reply":
            print("[1, 2, 3]", flush=True)
            time.sleep(60)
        case "wrong-id":
            say(id="another", status="ok")
        case "no-id":
            say(status="ok")
        case "flood":
            while True:
                os.write(1, b"x" * 65_536)
        case "flood-progress":
            line = json.dumps({"id": job, "progress": 0.1}).encode() + b"\n"
            while True:
                os.write(1, line * 100)
        case "twice":
            say(id=job, status="ok", result="first")
            say(id=job, status="ok", result="second")
        case _:
            say(id=job, status="dead", message=f"unknown act {act}")


def main() -> None:
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "never-ready":
        time.sleep(60)
    elif how == "wrong-ready":
        print("Welcome to this program!", flush=True)
    elif how == "dead-on-arrival":
        sys.exit("no licence")
    elif how != "no-handshake":
        say(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer(request["id"], request["payload"])


if __name__ == "__main__":
    main()
