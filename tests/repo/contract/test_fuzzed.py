"""Every native module is fuzzed, and fuzzed under the sanitizers too."""

from __future__ import annotations

import runpy

from tests.support.sources import ROOT

HOSTILE = ROOT / "tests" / "evidence" / "hostile"
COVERED: dict[str, tuple[str, ...]] = runpy.run_path(str(HOSTILE / "covered.py"))["COVERED"]
NATIVE = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "batchval").rglob("*.pyx")
}


def test_every_native_module_has_a_target() -> None:
    named = {module for modules in COVERED.values() for module in modules}
    assert named == NATIVE


def test_the_sanitizers_run_every_target() -> None:
    assert set(runpy.run_path(str(HOSTILE / "sanitizers.py"))["TARGETS"]) == set(COVERED)
