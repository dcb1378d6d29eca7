"""One JVM serves all of these files: tests/conftest.py keeps them in one process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]
PORT = free_port()
#: the same JVM serves Spark Connect
CONNECT = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.port": str(PORT),
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Return local[2], as ``session`` starts it. Workers see this tree, wherever they run."""
    from batchval.spark import NoJava, session

    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    )
    try:
        started = session(
            "local[2]",
            conf={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"} | CONNECT,
        )
    except NoJava as error:
        pytest.skip(str(error))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def connect(spark: SparkSession) -> str:
    """Return the address of its Spark Connect server."""
    return f"sc://127.0.0.1:{PORT}"
