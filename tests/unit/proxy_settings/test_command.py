"""``batchval proxy`` as a process: what it prints, how it ends, what it never shows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from batchval.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from batchval.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from batchval.protocol.messages.sasl_handshake import SaslHandshakeResponse
from tests.support.health import page
from tests.support.network import closed_port
from tests.support.proxy import (
    ScriptedBroker,
    answered,
    batch,
    damaged,
    eventually,
    produce_frame,
    read_frame,
)

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "batchval", "proxy"]
SECRET = "pl4nted-s3cret"
CLOSED = "127.0.0.1:999"  # nothing listens there


class Gate:
    """One that runs; ``with`` ends it with SIGTERM and reads what it wrote."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            cwd=ROOT,
            env=os.environ | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.printed = self.process.stdout.readline()
        if not self.printed:
            self.err = self.process.communicate()[1]
            pytest.fail(f"it did not start: {self.err}")
        self.facts: dict[str, Any] = json.loads(self.printed)
        self.err = ""

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
            out, self.err = self.process.communicate(timeout=120)
            self.printed += out
        return self.process.returncode

    @contextlib.contextmanager
    def connected(self, name: str = "default") -> Iterator[socket.socket]:
        host, _, port = self.facts["listeners"][name].rpartition(":")
        with socket.create_connection((host, int(port)), 10) as sock:
            yield sock

    def get(self, path: str) -> tuple[int, str]:
        return page(self.facts["metrics"], path)


def gate(broker: ScriptedBroker, *words: str, **more: Any) -> Gate:
    listen = ["--listen", "127.0.0.1:0", "--upstream", broker.address, "--metrics", "127.0.0.1:0"]
    return Gate(*listen, "--mode", "enforce", "--log-format", "json", *words, **more)


def ran(*words: object, env: dict[str, str] | None = None) -> tuple[int, str, list[str]]:
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=ROOT,
        env=os.environ | (env or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr.splitlines()


def logged(err: str, event: str) -> list[dict[str, Any]]:
    return [row for line in err.splitlines() if (row := json.loads(line))["event"] == event]


# ---- runs ----------------------------------------------------------------------------------------


def test_it_refuses_counts_and_logs_and_ends_on_a_signal() -> None:
    with ScriptedBroker() as broker, gate(broker) as running:
        assert running.get("/livez") == (200, "ok\n")
        eventually(lambda: running.get("/readyz") == (200, "ok\n"))
        with running.connected() as sock:
            sock.sendall(
                produce_frame(
                    1, ("orders", 0, batch(b"good")), ("orders", 1, damaged(batch(b"bad")))
                )
            )
            read_frame(sock)
        text = running.get("/metrics")[1]
        # the scripted broker confirms no topic: the name has no label
        labels = '{outcome="refused",rule="crc-mismatch",topic="(other)"}'
        assert f"batchval_gate_broken_rules_total{labels} 1.0" in text
        assert 'batchval_gate_requests_by_api_total{api="Produce"} 1.0' in text
        assert "batchval_gate_produce_partitions_total 2.0" in text
        assert running.end() == 0
        (refused,) = logged(running.err, "refused")
        assert (refused["topic"], refused["partition"], refused["rule"]) == (
            "orders",
            1,
            "crc-mismatch",
        )
        assert refused["error"] == "CORRUPT_MESSAGE"


def test_observe_forwards_and_says_so() -> None:
    with ScriptedBroker() as broker, gate(broker, "--mode", "observe") as running:
        with running.connected() as sock:
            sent = produce_frame(1, ("orders", 1, damaged(batch(b"bad"))))
            sock.sendall(sent)
            read_frame(sock)
        assert broker.frames[0][8:] == sent[12:]
        assert running.facts["mode"] == "observe"
        running.end()
        assert len(logged(running.err, "observed")) == 1


def test_what_is_under_way_is_delivered_before_the_end() -> None:
    with (
        ScriptedBroker(lambda _: None) as broker,
        gate(broker) as running,
        running.connected() as sock,
    ):
        sock.sendall(produce_frame(1, ("orders", 0, batch(b"good"))))
        eventually(lambda: broker.frames)
        eventually(lambda: "batchval_gate_requests_in_flight 1.0" in running.get("/metrics")[1])
        running.process.send_signal(signal.SIGTERM)
        eventually(lambda: running.get("/readyz") == (503, "draining\n"))
        assert running.process.poll() is None
        assert broker.talking is not None
        broker.talking.sendall(answered(broker.frames[0]) or b"")
        assert read_frame(sock)[:4] == struct.pack(">i", 1)
        running.process.communicate(timeout=120)
        assert running.process.returncode == 0


@pytest.mark.alone
def test_who_asks_twice_does_not_wait() -> None:
    with (
        ScriptedBroker(lambda _: None) as broker,
        gate(broker) as running,
        running.connected() as sock,
    ):
        sock.sendall(produce_frame(1, ("orders", 0, batch(b"good"))))
        eventually(lambda: broker.frames)
        running.process.send_signal(signal.SIGTERM)
        eventually(lambda: running.get("/readyz")[0] == 503)
        began = time.monotonic()
        assert running.end(signal.SIGINT) == 130
        assert time.monotonic() - began < 10


def test_interrupted() -> None:
    with ScriptedBroker() as broker, gate(broker) as running:
        assert running.end(signal.SIGINT) == 130


def test_a_cluster_that_is_not_there_yet() -> None:
    gone = ScriptedBroker()
    gone.address = f"127.0.0.1:{closed_port()}"
    gone.listener.close()
    with gate(gone) as running:
        why = f"no broker can be reached: {gone.address} (Connection refused)\n"
        eventually(lambda: running.get("/readyz") == (503, why))
        assert running.get("/livez")[0] == 200
        assert running.end() == 0


def test_certificates_are_read_again_on_sighup(tmp_path: Path) -> None:
    def put(authority: trustme.CA) -> ssl.SSLContext:
        leaf = authority.issue_cert("127.0.0.1")
        (tmp_path / "gate.pem").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(tmp_path / "gate.key")
        (tmp_path / "gate.key").chmod(0o600)
        context = ssl.create_default_context()
        authority.configure_trust(context)
        return context

    def shows(context: ssl.SSLContext, running: Gate) -> bool:
        with running.connected() as sock:
            try:
                context.wrap_socket(sock, server_hostname="127.0.0.1").close()
            except ssl.SSLCertVerificationError:
                return False
        return True

    first = put(trustme.CA())
    with ScriptedBroker() as broker:
        path = tmp_path / "gate.yaml"
        listener = {"address": "127.0.0.1:0", "tls": {"certificate": "gate.pem", "key": "gate.key"}}
        path.write_text(
            yaml.safe_dump({"listeners": [listener], "upstream": {"bootstrap": broker.address}})
        )
        with Gate(
            "--config", str(path), "--log-format", "json", "--metrics", "127.0.0.1:0"
        ) as running:
            assert shows(first, running)
            second = put(trustme.CA())
            assert not shows(second, running)
            running.process.send_signal(signal.SIGHUP)
            eventually(lambda: shows(second, running))
            assert not shows(first, running)
            (tmp_path / "gate.key").write_text("none")
            running.process.send_signal(signal.SIGHUP)
            time.sleep(0.3)
            assert shows(second, running)
            assert running.end() == 0
            assert "stay as they were" in running.err


@pytest.mark.long
def test_settings_are_read_again_and_options_still_win(tmp_path: Path) -> None:
    def put(**values: Any) -> None:
        values = {"upstream": {"bootstrap": broker.address}, "mode": "enforce"} | values
        path.write_text(yaml.safe_dump(values))

    def counted(running: Gate, result: str, number: int) -> bool:
        return (
            f'batchval_gate_config_reloads_total{{result="{result}"}} {number}.0'
            in running.get("/metrics")[1]
        )

    path = tmp_path / "gate.yaml"
    words = [
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--mode",
        "observe",
    ]
    with ScriptedBroker() as broker:
        put(reload={"watch": False})
        with Gate("--config", str(path), *words) as running, running.connected() as sock:
            put(limits={"threads": 3}, log={"format": "text"}, reload={"watch": False})
            running.process.send_signal(signal.SIGHUP)
            running.process.send_signal(signal.SIGHUP)
            eventually(lambda: counted(running, "applied", 1))
            sock.sendall(produce_frame(1, ("orders", 0, damaged(batch(b"bad")))))
            read_frame(sock)  # the broker's: the mode of the command line holds
            put(limits={"threads": 300, "thread": 1})
            running.process.send_signal(signal.SIGHUP)
            eventually(lambda: counted(running, "refused", 1))
            assert "batchval_gate_config_last_reload_successful 0.0" in running.get("/metrics")[1]
            put(limits={"threads": 4})
            running.process.send_signal(signal.SIGHUP)
            eventually(lambda: counted(running, "applied", 2))
            put(limits={"threads": 5})  # watched from here on
            eventually(lambda: counted(running, "applied", 3))
            assert running.end() == 0
        events = [json.loads(line)["event"] for line in running.err.splitlines()]
        assert "settings reloaded: limits.threads 2 -> 3" in events
        assert "settings reloaded: limits.threads 3 -> 4, reload.watch false -> true" in events
        wrong = [event for event in events if event.startswith("settings refused")]
        assert [
            event.partition("gate.yaml:")[2].partition(": ")[2].split(":")[0] for event in wrong
        ] == [
            "limits.thread",
            "limits.threads",
        ]


def test_a_gate_that_drains_reads_nothing_again(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    with ScriptedBroker(lambda _: None) as broker:
        listeners = [{"address": "127.0.0.1:0"}]
        path.write_text(
            yaml.safe_dump({"listeners": listeners, "upstream": {"bootstrap": broker.address}})
        )
        words = ["--config", str(path), "--log-format", "json", "--metrics", "127.0.0.1:0"]
        with Gate(*words) as running, running.connected() as sock:
            sock.sendall(produce_frame(1, ("orders", 0, batch(b"good"))))
            eventually(lambda: broker.frames)
            running.process.send_signal(signal.SIGTERM)
            eventually(lambda: running.get("/readyz") == (503, "draining\n"))
            path.write_text("wrong")
            running.process.send_signal(signal.SIGHUP)
            assert broker.talking is not None
            broker.talking.sendall(answered(broker.frames[0]) or b"")
            assert read_frame(sock)[:4] == struct.pack(">i", 1)
            running.err = running.process.communicate(timeout=120)[1]
            assert running.process.returncode == 0
        assert "settings refused" not in running.err


# ---- ends before it begins -----------------------------------------------------------------------


@pytest.mark.long
def test_a_port_that_cannot_be_had() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for words in (("--listen", address), ("--listen", "127.0.0.1:0", "--metrics", address)):
            code, out, err = ran(*words, "--upstream", "127.0.0.1:1")
            assert (code, out) == (3, "")
            assert f"batchval proxy: cannot listen on {address}: Address already in use" in err


USAGE = [
    ([], "--listen and --upstream (HOST:PORT) or --config FILE is required"),
    (["--listen", ":1"], "--upstream (HOST:PORT) or"),
    (["--listen", ":1", "--upstream", "a"], "upstream.bootstrap: must be HOST:PORT"),
    (["--listen", ":1", "--upstream", "a:1", "--mode", "both"], "mode: must be enforce or observe"),
    (
        ["--listen", ":1", "--upstream", "a:1", "--claims-in", "trust"],
        "claims_in: trust needs a sender",
    ),
    (
        ["--listen", ":1", "--upstream", "a:1", "--claims-out", "all"],
        "claims_out: must be none, tag or payload",
    ),
    (
        ["--listen", ":1", "--upstream", "a:1", "--take-over"],
        "--take-over needs control or state_directory",
    ),
    (
        ["--config", "a", "--take-over", "--check-config"],
        "--check-config or --print-config cannot be combined with",
    ),
    (["--clients", "127.0.0.1:1", "--take-over"], "--clients cannot be combined with --take-over"),
    (["--report", "--clients", "127.0.0.1:1"], "--report cannot be combined with --clients"),
    (["--nothing"], "unknown option"),
]


@pytest.mark.parametrize(("words", "message"), USAGE)
def test_usage(words: list[str], message: str) -> None:
    code, out, (line,) = ran(*words)
    assert (code, out) == (2, "")
    assert line.startswith("batchval proxy: ")
    assert message in line


def test_a_file_that_is_not_there() -> None:
    code, _, (line,) = ran("--config", "nowhere.yaml")
    assert code == 3
    assert "nowhere.yaml: No such file" in line


@pytest.mark.long
def test_check_config(tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    tls = {"certificate": "none.pem", "key": "none.key"}
    admin = {"username": "u", "password": {"env": "BATCHVAL_TEST_NOTHING"}}
    values: dict[str, Any] = {
        "listeners": [{"address": "127.0.0.1:1", "tls": tls}],
        "upstream": {"bootstrap": CLOSED, "admin": admin},
    }
    path.write_text(yaml.safe_dump(values))
    code, out, err = ran("--check-config", "--config", path)
    assert (code, out) == (2, "")
    place = f"batchval proxy: {path}"
    warning = f"upstream.bootstrap: {CLOSED} cannot be reached: Connection refused"
    missing = "No such file or directory"
    unset = "the environment has no BATCHVAL_TEST_NOTHING, or it is empty"
    assert err == [
        f"batchval proxy: warning: {path}:11: {warning}",
        f"{place}:4: listeners[0].tls.certificate: {tmp_path}/none.pem: {missing}",
        f"{place}:5: listeners[0].tls.key: {tmp_path}/none.key: {missing}",
        f"{place}:8: upstream.admin.password: {unset}",
    ]
    del values["listeners"][0]["tls"]
    path.write_text(yaml.safe_dump(values))
    assert ran("--check-config", "--config", path, env={"BATCHVAL_TEST_NOTHING": "a"}) == (
        0,
        "the settings are valid\n",
        [f"batchval proxy: warning: {path}:8: {warning}"],
    )


def test_without_the_extra(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("raise ModuleNotFoundError('No module', name='pydantic')")
    code, _, (line,) = ran(
        "--listen", ":1", "--upstream", "a:1", env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    )
    assert code == 2
    assert line == "batchval proxy: pydantic is not installed: pip install 'batchval[proxy]'"


# ---- secrets -------------------------------------------------------------------------------------


def of_admin(frame: bytes) -> bytes | None:
    """Answer the gate's own requests as a broker does that accepts every password."""
    key, version, correlation_id = struct.unpack_from(">hhi", frame)
    answer: ApiVersionsResponse | SaslHandshakeResponse | SaslAuthenticateResponse
    if key == 18:
        spoken = [ApiVersion(api_key=one, min_version=0, max_version=1) for one in (3, 17, 36)]
        answer = ApiVersionsResponse(api_keys=spoken)
    elif key == 17:
        answer = SaslHandshakeResponse(0, ["PLAIN"])
    elif key == 36:
        answer = SaslAuthenticateResponse(0, None, b"")
    else:
        return answered(frame)
    return b"".join(bytes(piece) for piece in answer.encode(correlation_id, version))


def test_planted_secrets_are_nowhere_to_be_seen(tmp_path: Path) -> None:
    # In records, keys, SASL bytes, settings, the environment: nothing that the gate writes has
    # them.
    with ScriptedBroker(of_admin) as broker:
        path = tmp_path / "gate.yaml"
        (tmp_path / "password").write_text(SECRET)
        values: dict[str, Any] = {
            "mode": "enforce",
            "listeners": [{"address": "127.0.0.1:0"}],
            "upstream": {
                "bootstrap": broker.address,
                "admin": {"mechanism": "PLAIN", "username": "gate", "password": SECRET},
            },
            "log": {"format": "json", "level": "debug"},
            "metrics": {"address": "127.0.0.1:0"},
        }
        path.write_text(yaml.safe_dump(values))
        path.chmod(0o600)
        _, printed, err = ran("--print-config", "--check-config", "--config", path)
        assert "(hidden)" in printed
        shown = [printed, *err]
        with Gate("--config", str(path), env={"BATCHVAL_TEST_SECRET": SECRET}) as running:
            word = SECRET.encode()
            bad = damaged(batch(word * 10, key=word))
            wrong = bytearray(batch(word, key=word))
            wrong[60] += 1  # one record more than there are, and the checksum for it
            from batchval.core.format.crc32c import crc32c

            wrong[17:21] = crc32c(bytes(wrong[21:])).to_bytes(4, "big")
            with running.connected() as sock:
                frames = SaslAuthenticateRequest(b"\0user\0" + word, api_version=1).encode(
                    3, "client"
                )
                sock.sendall(b"".join(bytes(chunk) for chunk in frames))
                read_frame(sock)
                for n, records in enumerate((bad, bytes(wrong), word, b"\0" * 16 + word * 9)):
                    sock.sendall(produce_frame(n, ("orders", n, records)))
                    read_frame(sock)
            with running.connected() as sock:
                sock.sendall(struct.pack(">i", 1 << 30) + word)  # too long a frame
                sock.settimeout(10)
                assert sock.recv(1) == b""
            shown += [running.get("/metrics")[1], running.get("/readyz")[1]]
            assert running.end() == 0
            shown += [running.printed, running.err]
            assert len(logged(running.err, "refused")) == 4
        assert any(word in frame for frame in broker.frames)  # SASL passed through
        for text in shown:
            assert SECRET not in text
            assert "s3cret" not in text
