"""Run a command to the end of all that it starts, and print its cost as one line of JSON.

    python -m bench.spark.whole_tree COMMAND…

``returncode`` and ``seconds`` are the command's own; ``cpu_s`` is that of every process below it,
also of those that it does not wait for (a server that forks workers), so this waits for them. In a
process of its own, which has no others.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h: whose parent has ended becomes a child of this process


def main() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    began = time.monotonic()
    returncode = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=False).returncode
    seconds = time.monotonic() - began
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {"returncode": returncode, "seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime}
        )
    )


if __name__ == "__main__":
    main()
