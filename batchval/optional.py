"""Packages that an extra of the distribution brings, and the modules of batchval that need them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from batchval.errors import BatchvalError

__all__ = ["EXTRAS", "MissingExtraError", "require"]

#: {start of module names: (the extra, what these modules import at once)}. All other modules can be
#: imported without any extra. The distributions that an extra brings are listed in pyproject.toml.
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "batchval.audit": ("audit", ("pyarrow",)),
    "batchval.perf.clients.rdkafka": ("perf", ("confluent_kafka",)),
    "batchval.perf.workload": ("perf", ("pydantic", "yaml")),
    "batchval.proxy.watch.otlp_export": (
        "otel",
        ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    ),
    "batchval.proxy": ("proxy", ("pydantic", "yaml", "prometheus_client")),
    "batchval.segment.remote": ("audit", ("pyarrow",)),
    "batchval.yaml_settings": ("proxy", ("pydantic", "yaml")),
    "batchval.spark": ("spark", ("pyarrow", "pyspark")),
}


class MissingExtraError(BatchvalError, ModuleNotFoundError):
    """A package of an extra is not installed: ``part`` needs ``name``, which ``extra`` brings."""

    name: str

    def __init__(self, part: str, name: str, extra: str) -> None:
        super().__init__(
            f"{part} needs {name}, which is not installed: pip install 'batchval[{extra}]'"
        )
        self.part = part
        self.name = name
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        # ImportError keeps ``name`` where vars() does not show it.
        return (*super().__reduce__(), {"name": self.name})


def require(part: str) -> None:
    """Check that the packages of a part (a key of EXTRAS) are installed, without importing them.

    Raises MissingExtraError.
    """
    extra, names = EXTRAS[part]
    for name in names:
        if not _is_installed(name):
            raise MissingExtraError(part, name, extra)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a package that would hold it
        return False
