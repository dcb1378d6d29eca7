"""One attack in its own process: ``python -m tests.evidence.hostile_gate.attacker NAME HOST PORT``.

Prints "ready" when its requests are built, waits for a line, attacks, and prints `Sent` as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import asdict

from tests.evidence.hostile_gate.attacks import ATTACKS


def main(name: str, host: str, port: str) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    running = ATTACKS[name].run((host, int(port)))
    next(running)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        next(running)
    except StopIteration as ended:
        print(json.dumps(asdict(ended.value)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
