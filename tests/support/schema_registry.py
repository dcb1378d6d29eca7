"""A real schema registry: Apicurio Registry, with its storage in memory, on the loopback.

    with SchemaRegistry() as registry:
        ... registry.url ...  registry.register("orders-value", '"string"')

Needs Java 17 or newer, and Maven once: the release is unpacked into build/peers/.
"""

from __future__ import annotations

import atexit
import hashlib
import http.client
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from tests.support.fetching import locked, maven
from tests.support.ports import free_port
from tests.system.interop.kafka_broker import BrokerError, ToolMissing, find_java

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "tests" / "system" / "interop" / "registry" / "pom.xml"
BUILT = ROOT / "build" / "peers"
API = "/apis/ccompat/v7"
TIMEOUT = 60.0


def installed() -> Path:
    """Return the jar that runs the registry. ToolMissing: without Java or Maven."""
    folder = BUILT / f"apicurio-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with locked(BUILT / "registry.lock"):
        if not folder.exists():
            fresh = folder.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            arguments = [
                "-f",
                str(POM),
                "dependency:unpack-dependencies",
                f"-DoutputDirectory={fresh}",
            ]
            try:
                done = maven(*arguments, java=Path(find_java()), cwd=BUILT)
            except FileNotFoundError as error:
                raise ToolMissing(str(error)) from None
            if done.returncode:
                lines = (done.stdout + done.stderr).splitlines()
                raise BrokerError(
                    f"Maven could not fetch the registry: {next(iter(lines), 'no output')}"
                )
            fresh.replace(folder)
    return next(folder.glob("*-runner.jar"))


class SchemaRegistry:
    """One registry. Its port stays through stop and start; what it holds does not."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}{API}"
        self.process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.mkdtemp(prefix="batchval-registry-")

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> Self:
        """Return when the registry answers."""
        fast = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        own = [
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self.port}",
            "-Dquarkus.log.level=WARN",
        ]
        log = Path(self._folder) / "registry.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [find_java(), *fast, *own, "-jar", str(installed())],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                start_new_session=True,
            )
        atexit.register(self.stop)
        until = time.monotonic() + TIMEOUT
        while True:
            try:
                self.ask("GET", "/subjects")
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise BrokerError(
                        f"the registry did not start: {log.read_text()[-1000:]}"
                    ) from None
                time.sleep(0.1)
            else:
                return self

    def stop(self) -> None:
        """End it, whatever it is doing: nothing of it is kept."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            atexit.unregister(self.stop)

    def register(self, subject: str, schema: str) -> int:
        """Return the id of a schema that is registered for the subject from now on."""
        body = json.dumps({"schema": schema}).encode()
        found: int = self.ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)["id"]
        return found

    def ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Return the answer of the registry; fails where it is an error. OSError."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, API + path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert response.status == 200, answer
            return answer
        finally:
            connection.close()
