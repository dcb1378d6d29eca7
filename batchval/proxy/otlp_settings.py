"""The settings of OpenTelemetry: where metrics are sent by OTLP over HTTP."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BaseModel, Field, field_validator

from batchval.errors import BatchvalError
from batchval.proxy.values import STAND_IN_WORD, STRICT, PathField, SecretField
from batchval.schema_registry.client import split_url

__all__ = ["METRICS_PATH", "Otlp"]

#: Where a collector takes metrics, unless the endpoint has a path.
METRICS_PATH: Final = "/v1/metrics"
MOST_HEADERS: Final = 20
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")  # RFC 9110, 5.6.2
_EXPECTED: Final = "expected http://HOST:PORT or https://HOST:PORT; without a path, it is /v1/metrics"


class Otlp(BaseModel):
    """A collector that takes metrics by OTLP over HTTP, and how often it gets them.

    ``headers``  of each request, such as ``authorization``; they are secrets
    ``ca``       authorities of its certificate; None: those that the library brings
    """

    model_config = STRICT

    endpoint: str
    interval_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = 60_000
    headers: Annotated[dict[str, SecretField], Field(max_length=MOST_HEADERS)] = {}
    ca: PathField | None = None

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, url: str) -> str:
        try:
            if url != STAND_IN_WORD:
                split_url(url)
        except BatchvalError as error:
            if "credentials" in str(error):
                raise ValueError("it holds credentials: set the header authorization instead") from None
            raise ValueError(_EXPECTED) from None
        return url

    @field_validator("headers")
    @classmethod
    def _are_names(cls, headers: dict[str, SecretField]) -> dict[str, SecretField]:
        for name in headers:
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name[:100]!r} is not the name of a header")
        return headers

    @property
    def url(self) -> str:
        """The endpoint with its path."""
        scheme, host, port, path = split_url(self.endpoint)
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{port}{path or METRICS_PATH}"
