"""Shared code of the clients over librdkafka: texts of its errors, the last error, metadata."""

from __future__ import annotations

import re
import time
from typing import Any

from batchval.errors import BatchvalError
from batchval.perf.clients import rdkafka_package
from batchval.perf.clients.rdkafka_package import KafkaError, KafkaException

__all__ = ["METADATA_S", "LastError", "error_text", "list_topics", "reason", "version"]

METADATA_S = 10.0
_CREDENTIALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}


def error_text(error: KafkaError) -> str:
    """Return an error's text without the scheme that librdkafka puts before an address."""
    return re.sub(r"^(sasl_)?(plaintext|ssl)://", "", error.str(), flags=re.IGNORECASE).strip()


def reason(error: Exception) -> str:
    """Return the text of a KafkaException, or of what a wrong configuration raises."""
    first = error.args[0] if error.args else error
    return error_text(first) if isinstance(first, KafkaError) else str(first)


def version() -> str:
    """Return the version of the library and of the package that carries it."""
    return f"librdkafka {rdkafka_package.libversion()[0]}, confluent-kafka {rdkafka_package.__version__}"


class LastError:
    """An ``error_cb`` that keeps librdkafka's last error, to explain a timeout."""

    def __init__(self) -> None:
        self.text = ""
        self.refused: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() in _CREDENTIALS:
            self.refused = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.text:
            self.text = error_text(error)


def list_topics(
    client: Any,
    topic: str | None,
    last_error: LastError,
    servers: str,
    end: float,
    raised: type[BatchvalError],
) -> Any:
    """Return metadata of the topic, or of all topics.

    Raises ``raised`` where a broker refuses, or none answers before ``end`` (monotonic). Waits in
    short turns, because librdkafka reports a refusal only to ``poll``.

    """
    while True:
        try:
            return client.list_topics(topic, 1.0) if topic else client.list_topics(timeout=1.0)
        except KafkaException as error:
            client.poll(0)
            if last_error.refused is not None:
                raise raised(f"refused: {error_text(last_error.refused)}") from None
            if time.monotonic() >= end:
                raise raised(
                    f"no broker answers at {servers}: {last_error.text or reason(error)}"
                ) from None
