"""The two steps in which a running gate takes other settings.

    Prepared   builds all that can fail, in a thread; the gate goes on as it was
    apply      takes it, on the event loop; cannot fail

Several workers prepare first, and apply when all of them have prepared. New connections use the new
settings at once, open sessions within the next turns of the loop. A request that is being validated
is validated to its end by the gate that it was taken with.
"""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Final, Protocol

from batchval.proxy.life.parts import Parts, named
from batchval.proxy.produce.gate import Gate
from batchval.proxy.settings.config import Settings
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.settings.settings_diff import changes_only_mode, restart_faults
from batchval.proxy.watch import audit_log
from batchval.yaml_settings.faults import Source, lines_of

if TYPE_CHECKING:
    from batchval.proxy.life.assemble import RunningGate

__all__ = ["NotPrepared", "Prepared", "Step"]

#: Topics whose validators are compiled before the swap: those that clients have used first.
MOST_WARMED: Final = 1_000


class NotPrepared(ConfigError):
    """An error: a process did not prepare settings. They may be valid: try them again."""


class Step(Protocol):
    """Settings that a gate has prepared. ``max_connections`` that it can serve with them."""

    max_connections: int

    def apply(self) -> None:
        """Take them. It cannot fail."""


class Prepared:
    """Other settings for a running gate, with all that they need. Any thread may make them. Raises
    ConfigError. Where only the mode is new, no file is read again.

    One that is not applied needs no end: nothing runs before ``apply``.
    """

    def __init__(self, gate: RunningGate, settings: Settings) -> None:
        faults = list(restart_faults(gate.settings, settings))
        if faults:
            raise ConfigError(lines_of(faults, Source()))
        try:
            self.max_connections = gate.connections_for(settings)
        except OSError as error:
            raise ConfigError([f"limits.max_connections: {error.strerror}"]) from None
        if changes_only_mode(gate.settings, settings):
            self.parts, self.exporter = gate.parts.for_mode_of(settings), None
        else:
            self.parts = Parts(settings, gate.read_topics, gate.parts)
            with named("metrics.otlp.headers"):
                self.exporter = None if gate.otlp is None else gate.otlp.renewed()
        self.options = gate.options_of(self.parts)
        self._gate = gate
        self.gates = {
            name: gate.proxies[name].gate_of(options) for name, options in self.options.items()
        }
        self._share_ledger()
        self._warm()

    def _share_ledger(self) -> None:
        """Let all listeners have one ledger: the running gate's, if it has one."""
        self.ledger = self._gate.ledger
        for one in self.gates.values():
            if one.ledger is not None:
                self.ledger = self.ledger or one.ledger
                one.ledger = self.ledger

    def _warm(self) -> None:
        """Compile what the first requests after the swap would compile on the event loop."""
        settings = self.parts.settings
        for glob in [rule.match for rule in settings.topics.policies]:
            fnmatch.fnmatchcase("", glob)  # keeps the pattern
        names = self._gate.parts.asked_topics()[:MOST_WARMED]
        for one in self.gates.values():
            _compile(one, names)

    def apply(self) -> None:
        """Take the settings. On the event loop."""
        gate, parts, settings = self._gate, self.parts, self.parts.settings
        before = gate.parts
        gate.hold(parts)
        audit_log.change(settings.log)
        gate.refusals.bound(settings.log.refusals_per_second)
        gate.denials.bound(settings.log.refusals_per_second)
        gate.connection_log.bound(settings.log.connections_per_second)
        if gate.audit_file is not None:
            gate.audit_file.bound(settings.log.audit_max_bytes, settings.log.audit_max_files)
        gate.metrics.name_mode(settings.mode)
        gate.metrics.topics.most = settings.metrics.topics
        gate.shared.traffic.nodes = settings.metrics.nodes
        gate.observed.mode = settings.mode
        if gate.otlp is not None and self.exporter is not None:
            gate.otlp.use(self.exporter)
        self._apply_ledger()
        limits = next(iter(self.options.values())).limits
        gate.max_connections = self.max_connections
        gate.shared.budget.use(limits, self.max_connections)
        gate.shared.validation.use(settings.limits.threads)
        gate.start_validation()
        if settings.upstream != before.settings.upstream:
            gate.discovery.use(gate.discovery_options(parts))
        if (
            settings.upstream != before.settings.upstream
            or parts.cluster_topics is not before.cluster_topics
        ):
            gate.read_topics_anew()
        gate.retire(before, [proxy.gate for proxy in gate.proxies.values()])
        for name, proxy in gate.proxies.items():
            proxy.use(self.options[name], self.gates[name])

    def _apply_ledger(self) -> None:
        gate, policy = self._gate, self.parts.settings.claims_in
        gate.ledger = self.ledger
        if self.ledger is not None and policy.word != "ignore":
            self.ledger.follow(policy)
            gate.metrics.add_ledger(self.ledger)


def _compile(gate: Gate, names: list[str]) -> None:
    for name in names:
        gate.validators_of(name)
