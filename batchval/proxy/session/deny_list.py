"""The requests that the settings deny, by principal; ``handlers`` answers them.

DenyRule   API names, globs of principals and listeners
DenyList   principal -> the APIs that it may not use on one listener, and those of which it may
           not send the requests of brokers
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from batchval.protocol.walkers.broker_requests import BROKER_APIS, is_from_broker
from batchval.proxy.settings.config import DenyRule

__all__ = ["DenyList"]

#: Keys of APIs that are denied, and of those of which the requests of brokers are.
_Denied: TypeAlias = tuple[frozenset[int], frozenset[int]]


class DenyList:
    """The denied requests of one listener.

    ``guarded``  the APIs of which something is denied to some principal
    """

    MAX_KNOWN_PRINCIPALS = 1_000
    #: Characters of a principal that globs are compared with; a longer one may use no guarded API.
    MAX_MATCHED_LENGTH = 2_000

    def __init__(self, rules: Iterable[DenyRule], listener: str) -> None:
        self._rules = [rule for rule in rules if fnmatchcase(listener, rule.listeners)]
        self._all = _denied_by(self._rules)
        self.guarded = frozenset().union(*self._all)
        self._known: dict[str, _Denied] = {}

    def denied_to(self, principal: str | None) -> frozenset[int]:
        """Return the keys of the APIs that a principal may not use; None: that any may not."""
        return self._of(principal)[0]

    def shared_of(self, principal: str | None) -> frozenset[int]:
        """Return the keys of the APIs of which a principal may not send the requests of brokers."""
        return self._of(principal)[1]

    def _of(self, principal: str | None) -> _Denied:
        if principal is None or len(principal) > self.MAX_MATCHED_LENGTH:
            return self._all
        known = self._known.get(principal)
        if known is None:
            known = _denied_by(rule for rule in self._rules if rule.matches(principal))
            if len(self._known) >= self.MAX_KNOWN_PRINCIPALS:
                self._known.clear()
            self._known[principal] = known
        return known

    def denies(
        self, frame: memoryview, key: int, principal: str | None
    ) -> Literal["api", "inter-broker"] | None:
        """Return whether a principal may not send a request: because of its API, or as a request of
        brokers. Raises ProtocolError.
        """
        if key in self.denied_to(principal):
            return "inter-broker" if key in BROKER_APIS else "api"
        if key in self.shared_of(principal) and is_from_broker(frame[4:]):
            return "inter-broker"
        return None


def _denied_by(rules: Iterable[DenyRule]) -> _Denied:
    """Return the keys that rules deny, and those of which they deny the requests of brokers."""
    listed = list(rules)
    return (
        frozenset(key for rule in listed for key in rule.keys),
        frozenset(key for rule in listed for key in rule.shared),
    )
