"""One-file HTML pages: a package's template extends page.html.j2, which has the style and draws the
charts.

All values of a template are escaped: names and texts come from files and from the network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batchval.report.charts import COLOURS

__all__ = ["render"]

_SHARED = Path(__file__).parent


def render(template: Path, **values: Any) -> str:
    """Return the page of this template. Raises ModuleNotFoundError where jinja2 is not
    installed.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([template.parent, _SHARED]),
        autoescape=True,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template(template.name).render(run_colours=COLOURS, **values)
