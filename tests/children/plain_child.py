"""A child program for the tests of ``kit.children``: behaves as each line says."""

import os
import re
import signal
import subprocess
import sys
import time

from forge_jobs.kit.children import parent_link
from forge_jobs.kit.children.parent_link import ParentLink


def main() -> None:
    if "NO_KERNEL_SIGNAL" in os.environ:
        parent_link._arm_kernel_signal = lambda lifeline: None  # type: ignore[attr-defined]
    link = ParentLink.from_arguments(sys.argv[1:])
    link.send(b"ready")
    for line in link.lines():
        word, _, rest = line.decode().partition(" ")
        match word:
            case "echo":
                link.send(rest.encode())
            case "wide":
                link.send(b"z" * int(rest))
            case "many":
                for number in range(int(rest)):
                    link.send(b"%d" % number)
            case "grandchild":
                sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
                link.send(b"%d" % sleeper.pid)
            case "descriptors":
                listing = subprocess.run(
                    [sys.executable, "-c", "import os; print(len(os.listdir('/dev/fd')))"],
                    capture_output=True,
                    text=True,
                    check=True,
                )
                link.send(listing.stdout.strip().encode())
            case "print":
                print(rest, flush=True)
                print("and " + rest, file=sys.stderr, flush=True)
                link.send(b"printed")
            case "flood":
                sys.stdout.write("x" * int(rest))
                sys.stdout.flush()
                link.send(b"flooded")
            case "exit":
                os._exit(int(rest))
            case "stubborn":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                link.send(b"stubborn")
            case "sleep":
                time.sleep(float(rest))
            case "hold":
                link.send(b"holding")
                # Never ends, and never releases the interpreter lock.
                re.match(r"(a+)+$", "a" * 60 + "b")
            case _:
                raise ValueError(line)


if __name__ == "__main__":
    main()
