"""The command: see the package's docstring."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import tools.rehearsal as package
from tests.system.interop.kafka_broker import BrokerError, classpath, find_java
from tools.rehearsal.plan import LOGS, Rehearsal
from tools.rehearsal.steps import StepFailed, carry_out

INTERRUPTED = 130


def missing() -> str | None:
    """Return one line that names what the rehearsal lacks on this machine, or None. Install
    debootstrap.
    """
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "root on Linux is needed: debootstrap, chroot and mount namespaces"
    if shutil.which("debootstrap") is None:
        apt = ["apt-get", "-qq", "install", "--yes", "--no-install-recommends", "debootstrap"]
        if (
            shutil.which("apt-get") is None
            or subprocess.run(apt, stdout=subprocess.DEVNULL, check=False).returncode
        ):
            return "debootstrap is needed: apt-get install debootstrap"
    if absent := [tool for tool in ("unshare", "chroot", "git") if shutil.which(tool) is None]:
        return f"{', '.join(absent)} not found on PATH"
    try:
        find_java()
        classpath()
    except BrokerError as error:
        return str(error)
    return None


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.rehearsal",
        description=package.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--wheel",
        type=Path,
        help="New wheel (default: that of dist/, else one of the last commit).",
    )
    parser.add_argument(
        "--previous",
        metavar="REF",
        help="Commit to upgrade from (default: that of the last tag before HEAD).",
    )
    parser.add_argument(
        "--keep", action="store_true", help="Keep the tree of this run, in build/rehearsal."
    )
    options = parser.parse_args(arguments)
    if reason := missing():
        print(f"rehearsal: {reason}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Rehearsal(options.wheel, options.previous, keep=options.keep) as rehearsal:
            for line in carry_out(rehearsal.steps(), rehearsal.begin):
                print(line, flush=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    except StepFailed as error:
        print("FAILED:", error, *error.__notes__, sep="\n")
        return 1
    print(f"rehearsal: OK; logs in {LOGS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
