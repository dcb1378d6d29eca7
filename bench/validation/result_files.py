"""Write a bench's results: PLACE.json, all that was measured, and PLACE.md, as people read
it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(place: Path, result: dict[str, Any], text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    place.with_suffix(".md").write_text(text)
