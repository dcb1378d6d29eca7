"""Run old clients against Kafka 4.4, directly and through the gate, and write the table.

    python -m tests.system.interop.old_clients                      all, to the screen
    python -m tests.system.interop.old_clients --write              and docs/guide/old-clients.md
    python -m tests.system.interop.old_clients --client "Java 0.9" --operation gzip --route gate

The reference is a broker of 3.9, the last release that knows these clients. Needs Java, Maven, Go.
Exits with 1 if an operation fails through the gate that works with Kafka 3.9.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from bench import pages
from tests.system.interop.old_clients.cells import OPERATIONS, run
from tests.system.interop.old_clients.clients import CLIENTS, Client, named
from tests.system.interop.old_clients.page import GROUPS, ROUTES, SOURCE, render
from tests.system.interop.old_clients.rig import VERSIONS, Rig, running

#: clients that run at once
AT_ONCE = 3
Clients = dict[str, dict[str, dict[str, Any]]]


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "--client", action="append", metavar="PART", help="Clients whose name contains this."
    )
    parser.add_argument(
        "--operation", action="append", choices=list(OPERATIONS), help="Operations to run."
    )
    parser.add_argument("--route", action="append", choices=list(ROUTES), help="Routes to take.")
    parser.add_argument("--no-bridge", action="store_true", help="Leave the setting bridge away.")
    parser.add_argument(
        "--write", action="store_true", help="Save the result and write docs/guide/old-clients.md."
    )
    parser.add_argument(
        "--at-once", type=int, default=AT_ONCE, help="Number of clients that run at once."
    )
    options = parser.parse_args(arguments)
    try:
        clients = named(*options.client) if options.client else CLIENTS
    except ValueError as error:
        parser.error(str(error))
    machine = {"commit": commit()}
    if options.write:
        pages.check_commit(machine)
    found: Clients = {}
    for rig, routes in rigs(options.route or list(ROUTES), bridge=not options.no_bridge):
        run_all(clients, options.operation or list(OPERATIONS), routes, rig, options.at_once, found)
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine,
        "versions": VERSIONS,
    }
    before = saved()
    result["clients"] = merged(found, before if options.write else {})
    if options.write:
        pages.save(SOURCE, result)
    print(render(result))
    for line in (lines := differences(found, before)):
        print(line)
    return int(bool(lines))


def differences(found: Clients, before: Clients) -> list[str]:
    """Return what failed through the gate but, now or in the saved result, not with Kafka 3.9."""
    lines = []
    for name, operations in found.items():
        for operation, routes in operations.items():
            old = {**before.get(name, {}).get(operation, {}), **routes}.get("3.9", (True, ""))
            if "gate" in routes and not routes["gate"][0] and old[0]:
                lines.append(
                    f"fails through the gate alone: {name}, {operation}: {routes['gate'][1]}"
                )
    return lines


def rigs(routes: list[str], bridge: bool) -> Iterator[tuple[Rig, list[str]]]:
    """Yield the brokers that these routes lead to, one at a time, with the routes."""
    if "3.9" in routes:
        with running("3.9") as rig:
            yield rig, ["3.9"]
    # "own" reads what was produced before it, which without the gate is little
    others = [route for route in ("gate", "direct") if route in routes]
    if others:
        with running(with_gate="gate" in others, bridge=bridge) as rig:
            yield rig, others


def run_all(
    clients: list[Client],
    operations: list[str],
    routes: list[str],
    rig: Rig,
    at_once: int,
    found: Clients,
) -> None:
    """Run all operations into ``found``; those of one client one at a time."""
    lock = threading.Lock()

    def run_client(client: Client) -> None:
        for route in routes:
            for operation in operations:
                if operation in client.operations:
                    outcome = run(client, operation, route, rig)
                    with lock:
                        found.setdefault(client.name, {}).setdefault(operation, {})[route] = [
                            *outcome
                        ]
                        mark = "ok" if outcome.is_ok else "FAILED"
                        print(
                            f"{mark:6} {route:6} {client.name:32} {operation:14} {outcome.text}",
                            flush=True,
                        )

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(run_client, clients))


def commit() -> str:
    """Return the commit of the sources, and whether batchval/ has changes."""
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", "batchval")
    return _git("rev-parse", "--short", "HEAD") + (" with changes" if changes else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=pages.ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def saved() -> Clients:
    """Return the outcomes of the saved result; none if there is none."""
    try:
        clients: Clients = pages.read(SOURCE)["clients"]
    except FileNotFoundError:
        return {}
    return clients


def merged(found: Clients, before: Clients) -> Clients:
    """Return all outcomes, the found ones in place of earlier ones, in the order of the table."""
    order = [operation for group in GROUPS.values() for operation in group]
    known = {
        client.name: client.operations
        for client in CLIENTS
        if client.name in found or client.name in before
    }
    return {
        name: {
            operation: {
                route: outcomes[route]
                for outcomes in [
                    before.get(name, {}).get(operation, {}) | found.get(name, {}).get(operation, {})
                ]
                for route in ROUTES
                if route in outcomes
            }
            for operation in order
            if operation in can_do
            if operation in before.get(name, {}) or operation in found.get(name, {})
        }
        for name, can_do in known.items()
    }


if __name__ == "__main__":
    sys.exit(main())
