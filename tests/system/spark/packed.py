"""An environment for executors: this package and what it needs, packed as ``venv-pack`` packs one.

    python packed.py ARCHIVE

The packages are those of the interpreter that runs this, so nothing is fetched. In a terminal it
would be:
``python -m venv env && env/bin/pip install batchval[audit] pandas && venv-pack -p env -o
env.tar.gz``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import venv_pack

ROOT = Path(__file__).resolve().parents[3]
#: what executors import; what is lacking here is not copied (another codec provider, say)
WANTED = (
    *(
        "numpy",
        "numpy.libs",
        "pyarrow",
        "pandas",
        "pandas.libs",
        "dateutil",
        "six",
        "pytz",
        "tzdata",
        "lz4",
    ),
    *("zstandard", "snappy", "cramjam", "jinja2", "markupsafe"),
)
#: much, and never imported
_LEFT_OUT = shutil.ignore_patterns("tests", "include", "*.pyx", "*.a", "__pycache__", "*.c")


def make(archive: Path) -> None:
    """Pack the environment uncompressed, because it is unpacked at once."""
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        environment = Path(folder) / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        (packages,) = environment.glob("lib/python*/site-packages")
        for name in WANTED:
            found = importlib.util.find_spec(name) if not name.endswith(".libs") else None
            place = Path(found.origin) if found and found.origin else _shared_libraries(name)
            if place is None:
                continue
            if place.name == "__init__.py":
                shutil.copytree(
                    place.parent,
                    packages / place.parent.name,
                    ignore=_LEFT_OUT,
                    copy_function=_link,
                )
            elif place.is_dir():
                shutil.copytree(place, packages / place.name, copy_function=_link)
            else:
                _link(place, packages / place.name)
        for name in (
            "batchval",
            "pyspark_batchval",
            "pyspark_batchval_findings",
            "pyspark_batchval_live",
        ):
            shutil.copytree(ROOT / name, packages / name, ignore=_LEFT_OUT)
        # its links lead to the interpreter of this machine; venv-pack 0.2 spoils them where a
        # python_prefix is set
        venv_pack.pack(str(environment), output=str(archive), compress_level=0)


def _shared_libraries(name: str) -> Path | None:
    """Return shared libraries that a wheel has put next to its package."""
    for folder in map(Path, sys.path):
        if (folder / name).is_dir():
            return folder / name
    return None


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
