"""List the steps of a rehearsal: the previous wheel, the new wheel, the upgrade."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import yaml

from batchval.core.claims import TAG
from batchval.errors import ErrorCode
from batchval.report.units import plural
from tests.support import proxy as batches
from tests.support.topics import make_topic
from tests.system.interop.kafka_broker import KAFKA_VERSION, KafkaBroker
from tools.dist import digest
from tools.rehearsal import clients, wheels
from tools.rehearsal.running_gate import Gate, running_gate
from tools.rehearsal.settings import GATE, lost_values
from tools.rehearsal.steps import Step, expect, expect_equal
from tools.rehearsal.tree import Tree, make_base

LOGS = wheels.WORK / "logs"
SEGMENTS = wheels.ROOT / "fixtures" / "segments"
#: paths in the tree
OLD, NEW = "/opt/old", "/opt/new"
BROKER = "/var/lib/kafka"
DATA = f"{BROKER}/data"
WHEELS, OLD_WHEEL, NEW_WHEEL = "/srv/wheels", "/srv/wheel-old", "/srv/wheel-new"
GATE_YAML, EVERY_KEY_YAML = "/etc/batchval/gate.yaml", "/etc/batchval/every-key.yaml"
STATE, OLD_AUDIT = "/srv/audit/orders", "/srv/audit/segments-by-old"
CLAIMED_SEGMENT, CLAIMED_BATCHES = "/srv/claims/segment.log", "/srv/claims/batches.bin"
GOOD, DAMAGED = "/srv/segments", "/srv/damaged-0"
LOG = "00000000000000000000.log"
#: topics: of the old settings, and of the new wheel
ORDERS, FRESH = "orders.rehearsal", "fresh.rehearsal"
RECORDS = 500
CLAIMS_START, CLAIMS_END = 61, 74


class Rehearsal:
    """The tree and the broker of one run, and the steps that use them."""

    def __init__(self, wheel: Path | None, previous: str | None, *, keep: bool) -> None:
        """Take the options of the command line; see ``--help``."""
        self.chosen, self.previous, self.keep = wheel, previous, keep
        self.commit = self.old = self.new = ""
        self.tree: Tree
        self.broker: KafkaBroker
        self.printed: dict[str, Any] = {}
        self.claims_shown: list[Any] = []
        self.good_batches: list[bytes] = []
        #: records that the broker has acknowledged, by topic, and those that the old audit has read
        self.stored: Counter[str] = Counter()
        self.audited = 0
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        shutil.rmtree(LOGS, ignore_errors=True)
        LOGS.mkdir(parents=True)
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop the broker; keep the broker's log; remove the tree."""
        self._open.__exit__(*error)

    def begin(self, name: str) -> None:
        """Choose the log of a step."""
        if hasattr(self, "tree"):
            self.tree.log = LOGS / f"{name}.log"

    def steps(self) -> list[Step]:
        """Return all steps in their order."""
        return [
            ("tree", self.make_tree),
            ("wheels", self.make_wheels),
            ("broker", self.start_broker),
            ("old-install", self.old_install),
            ("old-settings", self.old_settings),
            ("old-gate", self.old_gate),
            ("old-claims", self.old_claims),
            ("old-audit", self.old_audit),
            ("new-install", self.new_install),
            ("new-check", self.new_check),
            ("new-gate", self.new_gate),
            ("new-audit", self.new_audit),
            ("upgrade", self.upgrade),
            ("settings-read", self.settings_are_read),
            ("gate-again", self.gate_again),
            ("claims-read", self.claims_are_read),
            ("claims-trusted", self.claims_are_trusted),
            ("audit-resumed", self.audit_is_resumed),
        ]

    # ---- what the steps share ------------------------------------------------------------------

    def make_tree(self) -> str:
        """Copy the bare tree and check that it is bare."""
        origin = make_base()
        self.tree = Tree()
        if not self.keep:
            self._open.callback(self.tree.remove)
        self.begin("tree")
        version = self.tree.check_bare()
        for name in ("codec-zstd-0", "rolled-0", "transactional-0"):
            shutil.copytree(SEGMENTS / name, self.tree.path(f"{GOOD}/{name}"))
        return f"{origin}; Python {version}, no compiler, no name resolves"

    def make_wheels(self) -> str:
        """Build or find the wheels, and copy them with their dependencies into the tree."""
        new, new_origin = wheels.new_wheel(self.chosen)
        self.new = wheels.version_of(new)
        self.commit = wheels.previous_commit(self.previous)
        old = wheels.build(self.commit)
        self.old = wheels.version_of(old)
        others = wheels.dependencies([old, new])
        # apart: two commits may have one version, and then one name of file
        for folder, files in ((WHEELS, others), (OLD_WHEEL, [old]), (NEW_WHEEL, [new])):
            for file in files:
                shutil.copy(file, self.tree.path(f"{folder}/{file.name}"))
        return (
            f"new {self.new} ({new_origin}, sha256 {digest(new)[:12]}); "
            f"previous {self.old} (commit {self.commit}); {len(others)} wheels of dependencies"
        )

    def start_broker(self) -> str:
        """Start a broker whose data lies in the tree."""
        self._open.callback(self._keep_broker_log)
        self.broker = self._open.enter_context(KafkaBroker(self.tree.path(f"{BROKER}/.")))
        for topic in (ORDERS, FRESH):
            make_topic(self.broker.bootstrap, topic)
        return f"Kafka {KAFKA_VERSION} at {self.broker.bootstrap}"

    def _keep_broker_log(self) -> None:
        with contextlib.suppress(OSError):
            shutil.copy(self.tree.path(f"{BROKER}/broker.log"), LOGS / "broker.log")

    def install(self, place: str, own: str, version: str, *options: str) -> int:
        """Install batchval of one folder from wheels of the tree; return how many there were.

        StepFailed unless ``batchval --version`` prints this version then.
        """
        pip = (f"{place}/bin/pip", "--isolated", "--disable-pip-version-check")
        report, links = "/tmp/report.json", ("--find-links", WHEELS, "--find-links", own)
        wanted = f"batchval[{wheels.EXTRAS}]"
        self.tree.run(*pip, "install", "--no-index", *links, "--report", report, *options, wanted)
        self.tree.run(*pip, "check")
        shown = self.batchval(place, "--version")
        expect(
            version in shown.replace(",", " ").split(),
            f"batchval --version prints {shown!r}, expected {version}",
        )
        return len(json.loads(self.tree.path(report).read_text())["install"])

    def install_anew(self, place: str, own: str, version: str) -> str:
        """Install batchval into a new environment."""
        self.tree.run("python3", "-m", "venv", place)
        count = self.install(place, own, version)
        return f"batchval[{wheels.EXTRAS}] {version}: {count} wheels"

    def batchval(self, place: str, *words: str, code: int = 0) -> str:
        """Run the installed command and return its standard output."""
        return self.tree.run(f"{place}/bin/batchval", *words, code=code)

    def summary(self, place: str, *words: str) -> dict[str, Any]:
        """Run a command with ``--json`` that must be clean; return its summary."""
        summary = summary_in(self.batchval(place, *words, "--json"))
        expect_equal(f"{' '.join(words)}: findings", summary["findings"], 0)
        return summary

    def old_gate_running(self) -> contextlib.AbstractContextManager[Gate]:
        """Start the gate of the first environment with the settings of the old version."""
        return running_gate(self.tree, f"{OLD}/bin/batchval", "--config", GATE_YAML)

    def exchange(self, gate: Gate, topic: str) -> None:
        """Produce and consume records through the gate; send it a damaged batch."""
        first = self.stored[topic]
        values = [b"record %d" % number for number in range(first, first + RECORDS)]
        clients.produce(gate.bootstrap, topic, values, "zstd")
        self.stored[topic] += RECORDS
        read = clients.consume(gate.bootstrap, topic, self.stored[topic])
        expect(
            read[first:] == values,
            f"{topic}: the last {RECORDS} records read differ from those produced",
        )
        before = gate.metric("batchval_gate_partitions_refused_total")
        damaged = batches.damaged(batches.batch(b"one", b"two"))
        code = clients.send_batch(gate.bootstrap, topic, damaged)
        expect_equal("a damaged batch got", code.name, ErrorCode.CORRUPT_MESSAGE.name)
        refused = gate.metric("batchval_gate_partitions_refused_total") - before
        expect_equal("refused partitions of the gate:", refused, 1)

    # ---- the previous wheel --------------------------------------------------------------------

    def old_install(self) -> str:
        """Install the previous wheel with its extras."""
        return self.install_anew(OLD, OLD_WHEEL, self.old)

    def old_settings(self) -> str:
        """Write settings that the previous version accepts, and keep how it reads them."""
        self.tree.write(GATE_YAML, GATE.replace("BROKER", self.broker.bootstrap))
        self.tree.write(EVERY_KEY_YAML, wheels.settings_of_docs(self.commit))
        self.batchval(OLD, "proxy", "--config", GATE_YAML, "--check-config")
        self.printed = self.settings_read()
        return "gate.yaml, and every key of the previous version's documentation"

    def settings_read(self) -> dict[str, Any]:
        """Return both settings files as the first environment's version reads them."""
        files = (GATE_YAML, EVERY_KEY_YAML)
        return {
            file: yaml.safe_load(self.batchval(OLD, "proxy", "--config", file, "--print-config"))
            for file in files
        }

    def old_gate(self) -> str:
        """Produce and consume through the previous version's gate."""
        with self.old_gate_running() as gate:
            self.exchange(gate, ORDERS)
        return f"{RECORDS} records through it, a damaged batch refused; SIGTERM: 0"

    def old_claims(self) -> str:
        """Attach claims to a segment and to batches as clients send them."""
        self.tree.path(CLAIMED_SEGMENT)
        self.batchval(
            OLD, "claims", "attach", f"{GOOD}/codec-zstd-0/{LOG}", "--out", CLAIMED_SEGMENT
        )
        self.good_batches = [
            batches.batch(b"one" * size, b"two" * size, codec=batches.ZSTD) for size in (50, 60, 70)
        ]
        self.tree.write("/srv/claims/sent.bin", b"".join(self.good_batches))
        self.batchval(OLD, "claims", "attach", "/srv/claims/sent.bin", "--out", CLAIMED_BATCHES)
        self.claims_shown = self.claims_in_files()
        return f"attached to {len(self.claims_shown)} batches"

    def claims_in_files(self) -> list[Any]:
        """Return the lines of ``claims show --json`` of both files."""
        files = (CLAIMED_SEGMENT, CLAIMED_BATCHES)
        return [
            json.loads(line)
            for f in files
            for line in self.batchval(OLD, "claims", "show", "--json", f).splitlines()
        ]

    def old_audit(self) -> str:
        """Audit the broker's topic and a folder of segments; the tables are the state."""
        state = self.audit(OLD, DATA, "--topics", ORDERS, "--out", STATE)
        self.audited = state["records"]
        expect_equal(f"audited records of {ORDERS}:", self.audited, self.stored[ORDERS])
        self.audit(OLD, GOOD, "--out", OLD_AUDIT)
        return f"{state['batches']} batches of the broker, no finding"

    def audit(self, place: str, *words: str) -> dict[str, Any]:
        """Audit with local processes; StepFailed with a finding or a file that cannot be read."""
        return self.summary(
            place, "audit", *words, "--engine", "local", "--processes", "2", "--deep"
        )

    # ---- the new wheel -------------------------------------------------------------------------

    def new_install(self) -> str:
        """Install the new wheel into an environment of its own."""
        return self.install_anew(NEW, NEW_WHEEL, self.new)

    def new_check(self) -> str:
        """Check good segments, and one with a damaged byte."""
        summary = self.summary(NEW, "check", GOOD)
        segment = bytearray((SEGMENTS / "codec-none-0" / LOG).read_bytes())
        segment[20_000] ^= 1
        self.tree.write(f"{DAMAGED}/{LOG}", bytes(segment))
        shown = self.batchval(NEW, "check", DAMAGED, code=1)
        expect(
            "crc-mismatch" in shown,
            f"check of a damaged segment does not name crc-mismatch:\n{shown}",
        )
        return f"{summary['batches']} good batches: 0; a damaged one: 1, crc-mismatch"

    def new_gate(self) -> str:
        """Start the gate without a settings file; good batches pass, a damaged one does not."""
        upstream = ("--listen", "127.0.0.1:0", "--upstream", self.broker.bootstrap)
        more = ("--mode", "enforce", "--metrics", "127.0.0.1:0", "--log-format", "json")
        with running_gate(self.tree, f"{NEW}/bin/batchval", *upstream, *more) as gate:
            self.exchange(gate, FRESH)
        stored = clients.consume(self.broker.bootstrap, FRESH, RECORDS)
        expect_equal("the broker's last record is", stored[-1], b"record %d" % (RECORDS - 1))
        return f"{RECORDS} records through it, a damaged batch: CORRUPT_MESSAGE; SIGTERM: 0"

    def new_audit(self) -> str:
        """Audit all of the running broker's log directory."""
        summary = self.audit(NEW, DATA, "--out", "/srv/audit/by-new")
        expect(
            summary["records"] >= RECORDS,
            f"{summary['records']} records audited, expected at least {RECORDS}",
        )
        return f"{summary['segments']} segments, {summary['batches']} batches, no finding"

    # ---- the upgrade ---------------------------------------------------------------------------

    def upgrade(self) -> str:
        """Upgrade the first environment as a user does."""
        again = ["--force-reinstall"] if self.old == self.new else []
        count = self.install(OLD, NEW_WHEEL, self.new, "--upgrade", *again)
        return f"{self.old} to {self.new}: {plural(count, 'new wheel')}"

    def settings_are_read(self) -> str:
        """Read the old settings files with the new version: no key may be lost or changed."""
        self.batchval(OLD, "proxy", "--config", GATE_YAML, "--check-config")
        now = self.settings_read()
        lost = [
            f"{file}: {line}" for file in now for line in lost_values(self.printed[file], now[file])
        ]
        expect(not lost, "the new version reads old settings otherwise: " + "; ".join(lost))
        return "gate.yaml and every key: as the previous version reads them"

    def gate_again(self) -> str:
        """Start the upgraded gate with the old settings, whose limit on batches must hold."""
        with self.old_gate_running() as gate:
            self.exchange(gate, ORDERS)
            code = clients.send_batch(gate.bootstrap, ORDERS, batches.batch(b"x" * 30_000))
        expect_equal("30,000 bytes got", code.name, ErrorCode.MESSAGE_TOO_LARGE.name)
        return f"{RECORDS} records more through it, the limit of gate.yaml holds; SIGTERM: 0"

    def claims_are_read(self) -> str:
        """Read the claims of the previous version: all the same, honest and trusted.

        Lines may have new fields; none may be gone.
        """
        shown = self.claims_in_files()
        expect_equal("batches of claims show:", len(shown), len(self.claims_shown))
        lost = lost_values(self.claims_shown, shown)
        expect(not lost, f"claims show, before and after the upgrade: {'; '.join(lost[:3])}")
        for file in (CLAIMED_SEGMENT, CLAIMED_BATCHES):
            self.batchval(OLD, "claims", "verify", file)
        self.summary(OLD, "check", "--accept-claims-header", CLAIMED_SEGMENT)
        trusting = ("--as", "produce", "--accept-claims-header", "--claims", "trust")
        claims = self.summary(OLD, "check", *trusting, CLAIMED_BATCHES)["claims"]
        wanted = {"trusted": len(self.good_batches)}
        expect_equal("check --claims trust: claims", claims, wanted)
        return f"{len(self.claims_shown)} batches as before, honest; {wanted['trusted']} accepted on trust"

    def claims_are_trusted(self) -> str:
        """Send batches to the upgraded gate with claims of the previous version."""
        tags = list(tags_of(self.tree.path(CLAIMED_BATCHES).read_bytes(), self.good_batches))
        with self.old_gate_running() as gate:
            for batch, tag in zip(self.good_batches, tags, strict=True):
                code = clients.send_batch(gate.bootstrap, ORDERS, batch, (TAG, tag))
                expect_equal("a batch with claims got", code.name, ErrorCode.NONE.name)
                self.stored[ORDERS] += 2
            trusted = gate.metric("batchval_gate_claims_trusted_total")
        expect_equal("claims that the gate trusted:", trusted, len(tags))
        return f"the gate trusted {len(tags)} of {len(tags)}"

    def audit_is_resumed(self) -> str:
        """Resume the audit from the old state; compare the tables of both versions."""
        later = self.audit(
            OLD, DATA, "--topics", ORDERS, "--since", STATE, "--out", f"{STATE}-resumed"
        )
        wanted = self.stored[ORDERS] - self.audited
        expect_equal("records audited since:", later["records"], wanted)
        unchanged = self.audit(
            OLD, GOOD, "--since", OLD_AUDIT, "--out", "/srv/audit/segments-resumed"
        )
        expect_equal("batches read again of unchanged segments:", unchanged["batches"], 0)
        self.audit(OLD, GOOD, "--out", "/srv/audit/segments-by-new")
        self.batchval(OLD, "audit", "--compare", OLD_AUDIT, "/srv/audit/segments-by-new")
        return (
            f"{later['records']} records read from where the old audit ended; "
            f"{unchanged['skipped']} unchanged segments skipped; the tables of both are equal"
        )


def summary_in(lines: str) -> dict[str, Any]:
    """Return the last line of ``--json``, which is the summary."""
    summary: dict[str, Any] = json.loads(lines.splitlines()[-1])
    expect_equal("the last line is of type", summary.get("type"), "summary")
    return summary


def tags_of(claimed: bytes, plain: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the tagged field of each batch, of the claims in a file of batches of magic 3.

    ``plain`` are the same batches of magic 2. A tag is version 1, the claims, and the CRC of the
    batch (docs/concepts/claims.md). StepFailed where a batch of the file has no claims.
    """
    position = 0
    for batch in plain:
        expect_equal(f"the batch at {position} has magic", claimed[position + 16], 3)
        claims = claimed[position + CLAIMS_START : position + CLAIMS_END]
        yield b"\1" + claims + batch[17:21]
        position += 12 + struct.unpack_from(">i", claimed, position + 8)[0]
