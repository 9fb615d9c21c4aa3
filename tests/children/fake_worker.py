"""A worker process without jobs, for the tests of the parent: behaves as its first argument says.

It appends a JSON line per start to the file named by its second argument.
"""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("act")
    parser.add_argument("start_log")
    parser.add_argument("--control-fd", type=int)
    parser.add_argument("--number", type=int)
    parser.add_argument("--replaces")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT, signal.SIGHUP])
    host_id = f"host-{os.getpid()}"
    with open(given.start_log, "a") as start_log:
        entry = {
            "pid": os.getpid(),
            "number": given.number,
            "replaces": given.replaces,
            "at": time.monotonic(),
        }
        start_log.write(json.dumps(entry) + "\n")
    control = socket.socket(fileno=given.control_fd)
    Worker(given.act, control, host_id).serve()


class Worker:
    def __init__(self, act: str, control: socket.socket, host_id: str) -> None:
        self.act = act
        self.control = control
        self.host_id = host_id

    def send(self, **message: object) -> None:
        try:
            self.control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(0)

    def serve(self) -> None:
        match self.act:
            case "refuse":
                self.send(refused="no module named 'nowhere'")
                sys.exit(1)
            case "die-early":
                sys.exit(3)
            case "slow-start":
                time.sleep(600)
            case "polite":
                signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
        self.send(started=self.host_id)
        if self.act != "mute":
            threading.Thread(target=self.heartbeat, daemon=True).start()
        for command in self.control.makefile("rb"):
            if command == b"drain\n" and self.act == "stubborn":
                continue
            break
        if self.act == "slow-drain":
            time.sleep(1)

    def heartbeat(self) -> None:
        while True:
            self.send(heartbeat=self.host_id)
            time.sleep(0.2)


if __name__ == "__main__":
    main()
