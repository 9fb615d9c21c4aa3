"""What the tests start, kill and stop: small scripts that use a JobQueue, one per role.

``python script.py ROLE URL …``: each prints what it did, one word or id per line, at once.
"""

import os
import signal
import sys
import time

from forge_jobs import JobQueue, LeaseLost


def say(*words: object) -> None:
    print(*words, flush=True)


def produce_and_drain(url: str, jobs: int) -> None:
    """Put jobs in, wait for the others, then work until nothing is left."""
    queue = JobQueue.open(url)
    for number in range(jobs):
        queue.enqueue("work", {"n": number})
    say("ready")
    sys.stdin.readline()
    while (job := queue.dequeue(lease="10s")) is not None:
        queue.complete(job)
        say(job.id)
    queue.close()


def eight(url: str, jobs: int) -> None:
    """Eight processes at once, without eight times the start of an interpreter."""
    ready, go = os.pipe(), os.pipe()
    children: list[int] = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            os.close(go[1])
            queue = JobQueue.open(url)
            queue.enqueue_many("work", range(jobs))
            os.write(ready[1], b".")
            os.read(go[0], 1)
            while (job := queue.dequeue()) is not None:
                queue.complete(job)
                os.write(1, f"{job.id}\n".encode())
            queue.close()
            os._exit(0)
        children.append(pid)
    for _ in children:
        os.read(ready[0], 1)
    os.close(go[1])
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0


def hold(url: str, lease: str) -> None:
    """Take a job and keep it until the process is killed."""
    queue = JobQueue.open(url)
    job = queue.dequeue(lease=lease)
    assert job is not None
    say(job.id, job.attempts)
    while True:
        time.sleep(0.1)


def hold_and_complete(url: str, lease: str) -> None:
    """Take a job, wait for a line, and complete it then."""
    queue = JobQueue.open(url)
    job = queue.dequeue(lease=lease)
    assert job is not None
    say(job.id, job.attempts)
    sys.stdin.readline()
    try:
        queue.complete(job, "from the one that was stopped")
        say("completed")
    except LeaseLost:
        say("lost")


def poison(url: str) -> None:
    """A job that kills the process that runs it."""
    queue = JobQueue.open(url)
    job = queue.dequeue()
    say("nothing" if job is None else job.attempts)
    if job is not None:
        os.kill(os.getpid(), signal.SIGKILL)


def walk_out(url: str) -> None:
    """End in good order with a job in hand."""
    job = JobQueue.open(url).dequeue()
    say("nothing" if job is None else job.attempts)


def main() -> None:
    role, url, *rest = sys.argv[1:]
    match role:
        case "produce_and_drain":
            produce_and_drain(url, int(rest[0]))
        case "eight":
            eight(url, int(rest[0]))
        case "hold":
            hold(url, rest[0])
        case "hold_and_complete":
            hold_and_complete(url, rest[0])
        case "poison":
            poison(url)
        case _:
            walk_out(url)


if __name__ == "__main__":
    main()
