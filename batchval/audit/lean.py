"""Imports pyarrow without pandas, in a process that only audits.

The first array that pyarrow makes imports pandas, where it is installed, to recognise its types:
0.17 s of CPU in each process that does. An audit has no pandas values. A later ``to_pandas``
imports it. Importing this module is enough, since the server that forks workers can only import
modules.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa

__all__: list[str] = []


class _NoPandas:
    """A module finder that hides pandas."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ImportError("not imported by an audit", name=name)


if "pandas" not in sys.modules:
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array(np.zeros(1))
        pa.array([1])
    finally:
        sys.meta_path.remove(_NoPandas)
