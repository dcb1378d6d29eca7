"""A gate in a process of its own, to be killed and started again on the same ports, its CPU
time read from outside.

with GateProcess(upstream) as gate:
    ... gate.bootstrap ...  gate.kill()  gate.start()
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

from tests.support.ports import free_ports

LOOPBACK = "127.0.0.1"
BROKERS = 3  # node ids that are provided for
ROOT = Path(__file__).resolve().parents[2]


class GateProcess:
    """Ports stay through kill and start.

    ``upstream``  brokers to bootstrap from: HOST:PORT, or several with commas between them
    ``policies``  glob -> topic configuration, by Kafka's keys;  ``limits``  of config.Limits
    ``poison``    memory that is let go is overwritten: who reads it late passes on rubbish, and is found out
    ``receive_buffer``  the kernel's buffer of each client's connection, which bounds a read of it
    ``congestion``      TCP congestion control towards brokers; "": the default of the machine
    ``bridge``  old clients that are served: "producers", "consumers"
    """

    def __init__(
        self,
        upstream: str,
        *,
        claims_in: str = "ignore",
        claims_out: str = "none",
        policies: dict[str, dict[str, Any]] | None = None,
        poison: bool = False,
        limits: dict[str, Any] | None = None,
        receive_buffer: int = 0,
        congestion: str = "",
        bridge: Collection[str] = (),
    ) -> None:
        self.port = free_ports(BROKERS + 2)
        self.bootstrap = f"{LOOPBACK}:{self.port}"
        self.settings = json.dumps(
            {
                "port": self.port,
                "upstream": upstream,
                "claims_in": claims_in,
                "claims_out": claims_out,
                "policies": policies or {},
                "poison": poison,
                "limits": limits or {},
                "receive_buffer": receive_buffer,
                "congestion": congestion,
                "bridge": list(bridge),
            }
        )
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self, timeout: float = 60.0) -> Self:
        """Start the process; return when it listens."""
        command = [sys.executable, "-m", "tests.support.gate_process", self.settings]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # "" where it has ended
        if line.strip() != "listening":
            self.kill()
            raise RuntimeError(f"the gate did not start: {line!r}")
        return self

    def kill(self) -> None:
        """kill -9."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGSTOP, SIGCONT."""
        assert self.process is not None
        self.process.send_signal(number)

    def counters(self) -> dict[str, Any]:
        """Return its counters now."""
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("counters\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def peak_bytes(self) -> int:
        """Return the peak of its resident memory so far."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) << 10


def set_congestion(name: str) -> None:
    """Set the TCP congestion control of every connection that the gate makes from now on."""
    from batchval.proxy.session import connections

    keep_alive = connections.keep_alive  # type: ignore[attr-defined]

    def with_congestion(transport: Any, *arguments: Any, **options: Any) -> None:
        keep_alive(transport, *arguments, **options)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())

    connections.keep_alive = with_congestion  # type: ignore[attr-defined]


async def serve(settings: dict[str, Any]) -> None:
    """Serve until standard input ends; answer each line of it with the counters."""
    from dataclasses import asdict

    from batchval.policy import TopicPolicy
    from batchval.protocol.frames import poison_released
    from batchval.proxy.life.listener_server import ListenerServer
    from batchval.proxy.settings.config import Settings
    from batchval.proxy.settings.options import ProxyOptions, TopicPolicies

    policies = {
        glob: TopicPolicy.from_kafka_config(config) for glob, config in settings["policies"].items()
    }
    values = Settings.model_validate(
        {
            "mode": "enforce",
            "listeners": [{"address": f"{LOOPBACK}:{settings['port']}"}],
            "upstream": {"bootstrap": settings["upstream"]},
        }
        | {key: settings[key] for key in ("claims_in", "claims_out", "bridge", "limits")}
    )
    options = ProxyOptions(
        values,
        values.listeners[0],
        topics=TopicPolicies(TopicPolicy(max_message_bytes=2**31 - 1), policies),
        claims_in=values.claims_in,
    )
    poison_released(settings["poison"])
    if settings["congestion"]:
        set_congestion(settings["congestion"])
    proxy = ListenerServer(options)
    for _ in range(100):  # what was killed a moment ago may still hold the port
        try:
            await proxy.start()
            break
        except OSError:
            await asyncio.sleep(0.05)
    if settings["receive_buffer"]:  # connections have the size of their listener
        for listener in proxy.cluster.listeners:
            listener.sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, settings["receive_buffer"]
            )
    until = time.monotonic() + 2.0
    while not proxy.discovery.ready and time.monotonic() < until:
        await asyncio.sleep(0.01)
    print("listening", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        lying = 0 if proxy.gate.ledger is None else proxy.gate.ledger.counts().lying
        print(json.dumps(asdict(proxy.counters) | {"lying": lying}), flush=True)
    await proxy.stop(5.0)


def main() -> None:
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings")
    settings = json.loads(parser.parse_args().settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings))


if __name__ == "__main__":
    main()
