"""The settings of OpenTelemetry: where metrics are sent by OTLP over HTTP."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field, field_validator

from batchval.proxy.settings.values import PathField, SecretField, check_url
from batchval.schema_registry.registry_client import split_url
from batchval.yaml_settings.wording import STRICT

__all__ = ["METRICS_PATH", "Otlp"]

#: Where a collector takes metrics, unless the endpoint has a path.
METRICS_PATH: Final = "/v1/metrics"
MOST_HEADERS: Final = 20
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # RFC 9110, 5.6.2

_collector_url = partial(
    check_url, path=f"; without a path, it is {METRICS_PATH}", instead="the header authorization"
)


class Otlp(BaseModel):
    """A collector that takes metrics by OTLP over HTTP, and how often it gets them.

    ``headers``  of each request, such as ``authorization``; they are secrets
    ``ca``       authorities of its certificate; None: those that the library brings
    """

    model_config = STRICT

    endpoint: Annotated[str, AfterValidator(_collector_url)]
    interval_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = 60_000
    headers: Annotated[dict[str, SecretField], Field(max_length=MOST_HEADERS)] = {}
    ca: PathField | None = None

    @field_validator("headers")
    @classmethod
    def _are_names(cls, headers: dict[str, SecretField]) -> dict[str, SecretField]:
        for name in headers:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name[:100]!r} is not the name of a header")
        return headers

    @property
    def url(self) -> str:
        """Return the endpoint with its path."""
        scheme, host, port, path = split_url(self.endpoint)
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{port}{path or METRICS_PATH}"
