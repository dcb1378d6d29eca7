"""An S3 service over a folder (versitygw, a Go program), and a wire to it that counts, and breaks
on request.

    python -m tests.support.s3_gateway          builds it, which takes a minute or two the first time

A bucket is a folder of the service's root, an object a file below it.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.go import GoMissing, installed
from tests.support.ports import free_port

PACKAGE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
ACCESS, SECRET, REGION = "batchval", "a-secret-of-the-tests", "us-east-1"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": ACCESS,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextlib.contextmanager
def s3_gateway(root: Path) -> Iterator[int]:
    """Serve the folders below ``root`` as buckets; yield the loopback port. GoMissing,
    RuntimeError.
    """
    program, port = installed(PACKAGE, VERSION), free_port()
    environment = os.environ | {"ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
    command = [str(program), "--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet"]
    with (
        tempfile.TemporaryFile() as log,
        tempfile.TemporaryDirectory(prefix="batchval-s3-") as about,
    ):
        process = subprocess.Popen(
            [*command, "posix", "--sidecar", about, str(root)],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait(
                process, port, lambda: (log.seek(0), log.read()[-500:].decode(errors="replace"))[1]
            )
            yield port
        finally:
            process.terminate()
            process.wait(30)


def _wait(process: subprocess.Popen[bytes], port: int, output: Callable[[], str]) -> None:
    end = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"versitygw does not listen on port {port}: {output()}")
        time.sleep(0.05)


def uri(port: int, path: str) -> str:
    """Return the URI of ``path``, which begins with the bucket."""
    return f"s3://{path}?scheme=http&region={REGION}&endpoint_override=127.0.0.1:{port}"


@dataclass
class Wire:
    """Connections to a service, passed on. A request whose first line matches ``cut`` gets so many
    bytes, then none.
    """

    port: int
    cut: re.Pattern[str] | None = None
    after: int = 0
    requests: list[str] = field(default_factory=list)  # first line, and the range asked for
    answered: int = 0  # bytes
    broken: int = 0


@contextlib.contextmanager
def wire(target: int) -> Iterator[Wire]:
    """Listen before the service on ``target``."""
    listener = socket.create_server(("127.0.0.1", 0))
    made = Wire(int(listener.getsockname()[1]))
    threading.Thread(target=_accept, args=(listener, made, target), daemon=True).start()
    try:
        yield made
    finally:
        listener.close()


def _accept(listener: socket.socket, made: Wire, target: int) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_pass_on, args=(client, made, target), daemon=True).start()


def _pass_on(client: socket.socket, made: Wire, target: int) -> None:
    """Pass on one request after the other, as a client of S3 sends them; bodies are small."""
    with (
        client,
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", target)) as server,
    ):
        left: list[int | None] = [None]  # how many bytes of the answer may still pass

        def answers() -> None:
            with contextlib.suppress(OSError):
                while data := server.recv(1 << 16):
                    if left[0] is not None:
                        data, left[0] = data[: left[0]], left[0] - len(data[: left[0]])
                        if not left[0]:
                            client.sendall(data)
                            made.broken += 1
                            break
                    made.answered += len(data)
                    client.sendall(data)
            for end in (client, server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=answers, daemon=True).start()
        while data := client.recv(1 << 16):
            head = data.decode("latin-1")
            if re.match(r"[A-Z]+ /", head):
                asked = re.search(r"(?i)^range: *(\S+)", head, re.MULTILINE)
                made.requests.append(head.partition("\r\n")[0] + (f" {asked[1]}" if asked else ""))
                matches = made.cut is not None and made.cut.search(made.requests[-1])
                left[0] = made.after if matches else None
            server.sendall(data)


if __name__ == "__main__":
    try:
        print(installed(PACKAGE, VERSION))
    except GoMissing as missing:
        raise SystemExit(f"{missing}") from None
