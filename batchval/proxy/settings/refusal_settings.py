"""The settings of denied APIs, and of copies of refused batches.

APIs are named as in Kafka's message definitions, in any case: DeleteTopics, alterconfigs. The name
inter-broker stands for the requests that brokers, controllers and operators send. Each listener
denies these by default. For most of them Kafka asks for CLUSTER_ACTION or ALTER on the cluster; but
a gate with a certificate of its own is one principal to the brokers, for all of its clients.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.broker_requests import BROKER_APIS, SHARED_WITH_BROKERS
from batchval.protocol.gate_versions import carried_versions
from batchval.proxy.settings.options import DenyRule
from batchval.proxy.settings.values import PathField
from batchval.yaml_settings.wording import STRICT

__all__ = [
    "DENIABLE",
    "INTER_BROKER",
    "NEVER_DENIED",
    "DenySettings",
    "Quarantine",
    "QuarantineField",
    "inter_broker_rules",
]

#: APIs without which no client can work.
NEVER_DENIED: Final[Mapping[int, str]] = {
    ApiKey.API_VERSIONS: "clients begin with it",
    ApiKey.METADATA: "clients find brokers by it",
    ApiKey.SASL_HANDSHAKE: "clients authenticate by it",
    ApiKey.SASL_AUTHENTICATE: "clients authenticate by it",
}
#: Name -> key of the APIs that may be denied: the others that a gate carries.
DENIABLE: Final[Mapping[str, int]] = {
    APIS[key].name: key for key in carried_versions() if key not in NEVER_DENIED
}

#: The name of a rule's preset: ``BROKER_APIS``, and of the APIs in ``SHARED_WITH_BROKERS`` the
#: requests of brokers. docs/guide/gate-writes.md has the reason for each.
INTER_BROKER: Final = "inter-broker"

_BY_NAME: Final = {api.name.lower(): api for api in APIS.values()}


def _api(value: Any) -> Any:
    """Return the name of an API as Kafka writes it. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be the name of an API, for example DeleteTopics")
    if value.lower() == INTER_BROKER:
        return INTER_BROKER
    api = _BY_NAME.get(value.lower())
    if api is None:
        near = difflib.get_close_matches(value.lower(), [name.lower() for name in DENIABLE], 1)
        hint = f": do you mean {_BY_NAME[near[0]].name}?" if near else ", for example DeleteTopics"
        raise ValueError(f"must be the name of an API of Kafka{hint}")
    if api.key in NEVER_DENIED:
        raise ValueError(f"{api.name} cannot be denied: {NEVER_DENIED[api.key]}")
    if api.name not in DENIABLE:
        raise ValueError(f"{api.name} is an API between controllers, which the gate does not carry")
    return api.name


def _globs(value: Any) -> Any:
    return (
        (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
    )


_Glob = Annotated[str, Field(min_length=1, max_length=1_000)]


class DenySettings(BaseModel):
    """APIs that the gate answers with an authorization error.

    ``apis``               names of APIs, or ``inter-broker``
    ``principals``         in Kafka's form, a glob: ``User:alice``, ``User:ANONYMOUS``
    ``except_principals``  globs of principals that the rule is not about
    ``listeners``          a glob of the names of listeners
    """

    model_config = STRICT

    apis: Annotated[list[Annotated[str, BeforeValidator(_api)]], Field(min_length=1)]
    principals: _Glob = "*"
    except_principals: Annotated[tuple[_Glob, ...], BeforeValidator(_globs)] = ()
    listeners: Annotated[str, Field(min_length=1, max_length=64)] = "*"

    @property
    def rule(self) -> DenyRule:
        """Return the rule for the data path."""
        keys = frozenset(DENIABLE[name] for name in self.apis if name != INTER_BROKER)
        if INTER_BROKER not in self.apis:
            return DenyRule(keys, self.principals, self.except_principals, self.listeners)
        return DenyRule(
            keys | BROKER_APIS,
            self.principals,
            self.except_principals,
            self.listeners,
            SHARED_WITH_BROKERS,
        )


def inter_broker_rules(rules: Iterable[DenySettings], listener: str) -> tuple[DenyRule, ...]:
    """Return what a listener denies by default, in addition to these rules.

    A principal that a rule excepts from ``inter-broker``, or from one of its APIs, is excepted here,
    too: the rule says who may use it.
    """
    here = [one.rule for one in rules if fnmatchcase(listener, one.listeners)]
    found: dict[tuple[str, ...], tuple[set[int], set[int]]] = {}
    for key in sorted(BROKER_APIS):
        exceptions = tuple(glob for rule in here if key in rule.keys for glob in rule.exceptions)
        found.setdefault(exceptions, (set(), set()))[0].add(key)
    for key in sorted(SHARED_WITH_BROKERS):
        exceptions = tuple(glob for rule in here if key in rule.shared for glob in rule.exceptions)
        found.setdefault(exceptions, (set(), set()))[1].add(key)
    return tuple(
        DenyRule(frozenset(keys), exceptions=exceptions, shared=frozenset(shared))
        for exceptions, (keys, shared) in found.items()
    )


class Quarantine(BaseModel):
    """Copies of refused batches, with their verdicts. They hold the records of clients.

    ``max_bytes``  of all files: the oldest go first
    ``observed``   copies of batches that are forwarded although they break a rule, too
    """

    model_config = STRICT

    directory: PathField
    max_bytes: Annotated[int, Field(ge=1 << 20)] = 1 << 30
    observed: bool = False


def _quarantine(value: Any) -> Any:
    """Return the long form of ``quarantine: DIR``."""
    return {"directory": value} if isinstance(value, str) else value


QuarantineField = Annotated[Quarantine, BeforeValidator(_quarantine)]
