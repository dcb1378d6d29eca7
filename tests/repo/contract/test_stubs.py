"""Each .pyi says of its .pyx what is true: the names, the parameters, the defaults, both ways."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.sources import PACKAGE, ROOT, files

STUBS = files(PACKAGE, ".pyi")
ALLOWED = Path(__file__).parent / "stubtest-allowlist.txt"


def test_stubtest(tmp_path: Path) -> None:
    """Run mypy's comparison of stubs with the compiled modules."""
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nignore_missing_imports = true\n")
    options = ["--mypy-config-file", str(config), "--allowlist", str(ALLOWED)]
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in STUBS]
    command = [sys.executable, "-m", "mypy.stubtest", *options, "--ignore-unused-allowlist"]
    ran = subprocess.run(
        [*command, *modules], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"no issues found in {len(modules)} modules" in ran.stdout
