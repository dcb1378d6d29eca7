"""CRC-32C by every kernel that this processor runs, against a table of one byte at a time; CRC-32
against zlib.
"""

from __future__ import annotations

import os
import platform
import random
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from batchval.core.format import crc32c
from tests.evidence.hostile.buffers import Guarded
from tests.support.batches import crc32c as bitwise

KERNELS = crc32c.usable_kernels()
RANDOM = random.Random(32)
NOISE = RANDOM.randbytes(1 << 20)


def prefixes(data: bytes) -> list[int]:
    """CRC-32C of data[:n] for each n, in one pass."""
    crcs = [0]
    for byte in data:
        crcs.append(bitwise(bytes([byte]), crcs[-1]))
    return crcs


def test_the_table_is_there_and_the_chosen_kernel_is_the_last() -> None:
    assert KERNELS[0] == "table"
    assert crc32c.kernel() == KERNELS[-1]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # the examples of RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_published_values(kernel: str, data: bytes, crc: int) -> None:
    assert crc32c.crc32c_by(kernel, data) == crc


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_short_length_at_every_alignment(kernel: str) -> None:
    for start in range(16):
        view = memoryview(NOISE)[start:]
        expected = prefixes(bytes(view[:301]))
        for length in range(302):
            assert crc32c.crc32c_by(kernel, view[:length]) == expected[length], (start, length)


@pytest.mark.parametrize("kernel", KERNELS)
def test_lengths_around_every_threshold(kernel: str) -> None:
    """Kernels change their way at 72, 256, 1024 bytes, and by rounds of 136, 256 and 3072."""
    expected = prefixes(NOISE[:14000])
    lengths = {
        n + d
        for n in (1024, 136 * 8, 136 * 64, 3072, 2 * 3072, 4096, 8192, 13999)
        for d in range(-9, 10)
    }
    for length in sorted(n for n in lengths if n < 14001):
        assert crc32c.crc32c_by(kernel, NOISE[:length]) == expected[length], length


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_byte_outside_the_buffer_is_read(kernel: str) -> None:
    """A read before or after the buffer would end this process: the pages there cannot be read."""
    guarded = Guarded(8192)
    lengths = (*range(302), 1024, 2559, 2560, 2561, 3071, 3072, 3073, 8191)
    expected = prefixes(NOISE[:8192])
    for length in lengths:
        for place in (guarded.at_start, guarded.at_end):
            assert crc32c.crc32c_by(kernel, place(NOISE[:length])) == expected[length], length


def test_crc32_reads_no_byte_outside_the_buffer() -> None:
    guarded = Guarded(8192)
    for length in (*range(302), 3071, 3072, 3073, 8191):
        for place in (guarded.at_start, guarded.at_end):
            assert crc32c.crc32(place(NOISE[:length])) == zlib.crc32(NOISE[:length]), length


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("length", [65535, 65536, 65537, 1 << 20])
def test_long_inputs(kernel: str, length: int) -> None:
    assert crc32c.crc32c_by(kernel, NOISE[:length]) == crc32c.crc32c_by("table", NOISE[:length])
    if length == 65536:
        assert crc32c.crc32c(NOISE[:length]) == bitwise(NOISE[:length])


@pytest.mark.parametrize("kernel", KERNELS)
def test_going_on_from_a_crc(kernel: str) -> None:
    for cut in (0, 1, 7, 64, 255, 1024, 5000):
        head = crc32c.crc32c_by(kernel, NOISE[:cut])
        assert crc32c.crc32c_by(kernel, NOISE[cut:9000], head) == bitwise(NOISE[:9000])


@pytest.mark.parametrize("length", [0, 1, 8, 61, 4095, 65536, 1 << 20])
def test_combining(length: int) -> None:
    for cut in sorted({0, min(1, length), length // 3, length}):
        first, second = NOISE[:cut], NOISE[cut:length]
        got = crc32c.crc32c_combine(crc32c.crc32c(first), crc32c.crc32c(second), len(second))
        assert got == crc32c.crc32c_by("table", NOISE[:length])


def test_combining_over_lengths_no_buffer_has() -> None:
    """Moving over a + b bytes is moving over a, then over b; and 2^31 - 1 bits are the order of the
    polynomial.
    """
    crc = 0x12345678
    for a, b in ((2**40, 12345), (2**63, 2**62), (1, 2**64 - 2)):
        moved = crc32c.crc32c_combine(crc32c.crc32c_combine(crc, 0, a), 0, b)
        assert moved == crc32c.crc32c_combine(crc, 0, a + b)
    assert crc32c.crc32c_combine(crc, 0, 2**31 - 1) == crc


def test_patching_a_header() -> None:
    """What assigning offsets does: the checksum of a changed head without a second pass over the
    tail.
    """
    for tail in (0, 1, 100, 3000, 100_000):
        old, new = NOISE[:40], RANDOM.randbytes(53)
        crc = crc32c.crc32c(old + NOISE[:tail])
        difference = crc32c.crc32c(old) ^ crc32c.crc32c(new)
        assert crc ^ crc32c.crc32c_combine(difference, 0, tail) == crc32c.crc32c_by(
            "table", new + NOISE[:tail]
        )


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_buffers(buffer: type) -> None:
    assert crc32c.crc32c(buffer(b"123456789")) == 0xE3069283
    assert crc32c.crc32(buffer(b"123456789")) == 0xCBF43926
    with pytest.raises(BufferError):
        crc32c.crc32c(memoryview(b"123456789")[::2])


def test_an_unknown_kernel() -> None:
    with pytest.raises(ValueError, match="no CRC-32C kernel 'gpu'"):
        crc32c.crc32c_by("gpu", b"")


def test_crc32_is_zlibs() -> None:
    for start in range(16):
        for length in (*range(302), 1000, 1024, 3071, 3072, 3073, 4096, 100_003):
            data = NOISE[start : start + length]
            assert crc32c.crc32(data) == zlib.crc32(data)
    assert crc32c.crc32(NOISE[500:], crc32c.crc32(NOISE[:500])) == zlib.crc32(NOISE)


#: bits of AT_HWCAP: https://docs.kernel.org/arch/arm64/elf_hwcaps.html
PMULL, CRC32 = 1 << 4, 1 << 7
COMPILER = shutil.which("cc", path=os.defpath)
#: preloaded into a process on ARM64: hides capabilities of the processor
HIDING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/auxv.h>

unsigned long getauxval(unsigned long type)
{
    unsigned long (*found)(unsigned long);
    *(void **)&found = dlsym(RTLD_NEXT, "getauxval"); /* as POSIX writes it */
    return type == AT_HWCAP ? found(type) & ~(HIDDEN) : found(type);
}
"""


if platform.machine() == "aarch64" and COMPILER:

    @pytest.mark.parametrize(
        ("hidden", "kernels"),
        [(PMULL, ["table", "armv8-crc"]), (PMULL | CRC32, ["table"])],
    )
    def test_arm64_without_a_capability(hidden: int, kernels: list[str], tmp_path: Path) -> None:
        """Choose as on a Raspberry Pi 4 (no PMULL), and on a processor without both."""
        (tmp_path / "hide.c").write_text(HIDING.replace("HIDDEN", f"{hidden}UL"))
        command = [str(COMPILER), "-shared", "-fPIC", "-o", "hide.so", "hide.c", "-ldl"]
        subprocess.run(command, cwd=tmp_path, check=True)
        script = "from batchval.core import crc32c as c; print(c.usable_kernels(), c.kernel())"
        settings = os.environ | {"LD_PRELOAD": str(tmp_path / "hide.so")}
        ran = subprocess.run(
            [sys.executable, "-c", script], env=settings, capture_output=True, text=True, check=True
        )
        assert ran.stdout.strip() == f"{kernels} {kernels[-1]}"
