"""Schema ids that a schema registry holds for a subject, over the REST API of Confluent's registry.

client   one question and its answer: bounded in time and in bytes
ids      what was answered, kept for many topics and read anew in the background
"""

from __future__ import annotations

from batchval.schema_registry.ids import Asker, RegistryBusyError, SubjectIds
from batchval.schema_registry.registry_client import (
    RegistryAnswerError,
    RegistryClient,
    RegistryError,
)

__all__ = [
    "Asker",
    "RegistryAnswerError",
    "RegistryBusyError",
    "RegistryClient",
    "RegistryError",
    "SubjectIds",
]
