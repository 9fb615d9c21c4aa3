"""A program for the tests of the worker pool: behaves as the payload says."""

import json
import os
import signal
import sys
import time

held: list[bytes] = []


def send(**line: object) -> None:
    print(json.dumps(line), flush=True)


def answer(job: str, payload: dict[str, object]) -> None:
    act = payload.get("act", "pid")
    match act:
        case "pid":
            send(id=job, status="ok", result=os.getpid())
        case "env":
            send(id=job, status="ok", result=dict(os.environ))
        case "sleep":
            time.sleep(float(str(payload["s"])))
            send(id=job, status="ok", result=os.getpid())
        case "grow":
            held.append(b"x" * (int(str(payload["mb"])) << 20))
            send(id=job, status="ok", result=os.getpid())
        case "report":
            print("on stderr", file=sys.stderr, flush=True)
            send(id=job, progress=0.25, note="a quarter")
            send(id=job, log="a line of its own")
            send(id=job, progress=0.75)
            time.sleep(0.1)
            send(id=job, status="ok", result={"text": "ä\n✓"})
        case "reply":
            send(**{"id": job, **payload["reply"]})  # type: ignore[dict-item]
        case "size":
            send(id=job, status="ok", result=len(str(payload["text"])))
        case "big":
            send(id=job, status="ok", result="x" * int(str(payload["bytes"])))
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
            send(id="another", status="ok")
        case "no-id":
            send(status="ok")
        case "flood":
            while True:
                os.write(1, b"x" * 65_536)
        case "flood-progress":
            line = json.dumps({"id": job, "progress": 0.1}).encode() + b"\n"
            while True:
                os.write(1, line * 100)
        case "twice":
            send(id=job, status="ok", result="first")
            send(id=job, status="ok", result="second")
        case _:
            send(id=job, status="dead", message=f"unknown act {act}")


def main() -> None:
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "never-ready":
        time.sleep(60)
    elif how == "wrong-ready":
        print("Welcome to this program!", flush=True)
    elif how == "dead-on-arrival":
        sys.exit("no licence")
    elif how != "no-handshake":
        send(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer(request["id"], request["payload"])


if __name__ == "__main__":
    main()
