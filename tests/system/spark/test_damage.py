"""Spark finds every kind of damage that one process finds, with splits of any size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from batchval.segment.options import Options
from batchval.segment.range_check import RangeResult
from batchval.segment.ranges import Range
from batchval.spark.engine import run_spark
from tests.system.at_rest.test_damage import all_damaged, all_found

pytestmark = pytest.mark.jvm


@pytest.mark.parametrize("split_bytes", [1 << 10, 4 << 10, 256 << 20])
def test_one_audit_of_all_damages(spark: SparkSession, tmp_path: Path, split_bytes: int) -> None:
    expected = all_damaged(tmp_path)

    def engine(ranges: Sequence[Range], options: Options, out: str | None) -> Iterable[RangeResult]:
        return run_spark(ranges, options, out)

    assert all_found(tmp_path, split_bytes, engine) == expected
