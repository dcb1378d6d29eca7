"""tools/musl_link.py: a driver's arguments as the linker's own."""

from __future__ import annotations

from tools import musl_link


def test_arguments() -> None:
    driver = [
        "-shared",
        "-Wl,-z,relro,-z,now",
        "-nostartfiles",
        "-s",
        "a.o",
        "-L/lib",
        "-o",
        "a.so",
    ]
    assert list(musl_link.arguments(driver)) == [
        *("-shared", "-z", "relro", "-z", "now", "-s", "a.o", "-L/lib", "-o", "a.so"),
    ]
