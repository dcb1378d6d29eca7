"""What the clients over librdkafka share: its errors in words, the last of them, and the metadata
of topics.
"""

from __future__ import annotations

import re
import time
from typing import Any

from batchval.errors import BatchvalError
from batchval.perf.clients import rdkafka_package
from batchval.perf.clients.rdkafka_package import KafkaError, KafkaException

__all__ = ["METADATA_S", "LastError", "list_topics", "reason", "version", "words"]

METADATA_S = 10.0
_CREDENTIALS = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL}


def words(error: KafkaError) -> str:
    """Without the scheme that librdkafka puts before an address."""
    return re.sub(r"^(sasl_)?(plaintext|ssl)://", "", error.str(), flags=re.IGNORECASE).strip()


def reason(error: Exception) -> str:
    """Of a KafkaException, or of what a wrong configuration raises."""
    first = error.args[0] if error.args else error
    return words(first) if isinstance(first, KafkaError) else str(first)


def version() -> str:
    """Of the library, and of the package that carries it."""
    return f"librdkafka {rdkafka_package.libversion()[0]}, confluent-kafka {rdkafka_package.__version__}"


class LastError:
    """An ``error_cb``: what librdkafka said last, for a sentence that says more than that time is
    up.
    """

    def __init__(self) -> None:
        self.text = ""
        self.refused: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        if error.code() in _CREDENTIALS:
            self.refused = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.text:
            self.text = words(error)


def list_topics(
    client: Any,
    topic: str | None,
    said: LastError,
    servers: str,
    end: float,
    raised: type[BatchvalError],
) -> Any:
    """Metadata of the topic, or of all. ``raised`` where a broker refuses, or none answers before
    ``end`` (monotonic).

    In short turns: what librdkafka says of a refusal comes by poll alone.
    """
    while True:
        try:
            return client.list_topics(topic, 1.0) if topic else client.list_topics(timeout=1.0)
        except KafkaException as error:
            client.poll(0)
            if said.refused is not None:
                raise raised(f"refused: {words(said.refused)}") from None
            if time.monotonic() >= end:
                raise raised(
                    f"no broker answers at {servers}: {said.text or reason(error)}"
                ) from None
