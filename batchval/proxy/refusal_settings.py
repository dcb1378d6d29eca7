"""The settings of denied APIs, and of copies of refused batches.

APIs are named as in Kafka's message definitions, in any case: DeleteTopics, alterconfigs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, Field

from batchval.protocol.apis import APIS, ApiKey
from batchval.protocol.gate_versions import carried_versions
from batchval.proxy.options import DenyRule
from batchval.proxy.values import PathField
from batchval.yaml_settings.wording import STRICT

__all__ = ["DENIABLE", "NEVER_DENIED", "DenySettings", "Quarantine", "QuarantineField"]

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

_BY_NAME: Final = {api.name.lower(): api for api in APIS.values()}


def _api(value: Any) -> Any:
    """Return the name of an API as Kafka writes it. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be the name of an API, for example DeleteTopics")
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
        keys = frozenset(DENIABLE[name] for name in self.apis)
        return DenyRule(keys, self.principals, self.except_principals, self.listeners)


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
