"""Choosing a provider, finding its functions, and what the packages answer to damage."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.block
import pytest
import zstandard

from batchval import compression
from batchval.compression import native, packages
from batchval.core.validator import LogValidator
from batchval.errors import BatchvalError
from tests.support.batches import LZ4, NOW, ZSTD, batch, records

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = compression.provider()
    yield
    compression.use(before)


@pytest.mark.parametrize("name", compression.PROVIDERS)
def test_use(name: str) -> None:
    assert compression.use(name) == compression.provider() == name
    told = compression.describe()
    assert set(told) == {"gzip", "snappy", "lz4", "zstd"}
    assert (told["gzip"], told["snappy"]) == ("batchval inflate", "batchval snappy")
    for codec in ("lz4", "zstd"):
        assert ("for Python" in told[codec]) == (name == "packages")
        assert ("lib" in told[codec]) == (name == "native")
    for codec in (LZ4, ZSTD):
        assert LogValidator().check(batch(records(50), codec=codec), now_ms=NOW).ok


def test_no_provider() -> None:
    before = compression.provider()
    for name in ("Native", "", "isal", 5):
        with pytest.raises(BatchvalError, match="BATCHVAL_CODECS"):
            compression.use(name)  # type: ignore[arg-type]
    assert compression.provider() == before


def test_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the packages serve, unless native was asked for by name."""
    monkeypatch.setattr(native, "find", native.Found)
    assert compression.use() == "packages"
    assert LogValidator().check(batch(records(50), codec=ZSTD), now_ms=NOW).ok
    with pytest.raises(BatchvalError, match="no working"):
        compression.use("native")
    assert compression.provider() == "packages"


@pytest.mark.parametrize(("value", "expected"), [("packages", "packages"), ("native", "native"), ("", None)])
def test_the_environment_chooses(value: str, expected: str | None) -> None:
    command = "from batchval import compression; print(compression.provider())"
    environment = os.environ | {"BATCHVAL_CODECS": value}
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (expected or compression.use())


def test_the_environment_chooses_wrongly() -> None:
    environment = os.environ | {"BATCHVAL_CODECS": "zlib"}
    command = [sys.executable, "-c", "import batchval.compression"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "BATCHVAL_CODECS must be one of native, packages" in done.stderr


# ---- finding functions ---------------------------------------------------------------------------------------------


def test_what_is_found_works() -> None:
    found = native.find()
    assert set(found.addresses) == {*native._LZ4, *native._ZSTD}
    assert all(found.addresses.values())
    assert set(found.origins) == {"lz4", "zstd"}
    assert len(found.libraries) == 2


def only(path: str) -> Any:
    return lambda modules, host: iter([(path, "test")])


@pytest.mark.parametrize("path", ["/nowhere/liblz4.so", __file__, ctypes.util.find_library("c") or "libc.so.6"])
def test_a_library_that_is_none(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing, no library at all, and one without the functions."""
    monkeypatch.setattr(native, "_candidates", only(path))
    assert native.find().addresses == {}


@pytest.mark.parametrize("test", ["_lz4_works", "_zstd_works"])
def test_a_library_that_does_not_work(test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, test, lambda library: False)
    found = native.find()
    assert (found.addresses, found.origins) == ({}, {})


def test_the_self_test_sees_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = native.find().libraries
    assert native._lz4_works(libraries[0])
    assert native._zstd_works(libraries[1])
    monkeypatch.setattr(native, "_SELF_TEST", b"something" * 8)
    assert not native._lz4_works(libraries[0])
    assert not native._zstd_works(libraries[1])


def test_the_self_tests_bytes_are_what_the_packages_say() -> None:
    assert lz4.block.decompress(native._LZ4_BLOCK, uncompressed_size=64) == native._SELF_TEST
    assert zstandard.ZstdDecompressor().decompress(native._ZSTD_FRAME) == native._SELF_TEST


def test_no_module_and_no_host_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.ctypes.util, "find_library", lambda name: None)
    assert list(native._candidates(("no.such.module", "no_such_module"), "nothing")) == []
    monkeypatch.setattr(native.ctypes.util, "find_library", lambda name: f"lib{name}.so.1")
    assert list(native._candidates(("json",), "lz4")) == [("liblz4.so.1", "host's liblz4.so.1")]


# ---- packages ------------------------------------------------------------------------------------------------------


def test_lz4_blocks_through_the_package() -> None:
    data = bytes(range(256)) * 40
    packed = lz4.block.compress(data, store_size=False)
    assert packages.lz4_block(packed, len(data)) == data
    assert packages.lz4_block(packed, len(data) + 1000) == data
    assert packages.lz4_block(packed, len(data) - 1) is None
    assert packages.lz4_block(packed[:-3], len(data)) is None
    assert packages.lz4_block(b"\xff" * 20, 100) is None


def _content(frame: bytes, step: int) -> tuple[bytes, bool]:
    """All that the package makes of a frame, read ``step`` bytes at a time, and whether it was undamaged."""
    decoder = packages.ZstdFrame(frame)
    target = memoryview(bytearray(step))
    content = b""
    while (n := decoder.readinto(target)) == step and not decoder.damaged:
        content += target[:n]
    return content + target[:n], not decoder.damaged


@pytest.mark.parametrize("step", [1000, 131072])
def test_zstd_frames_through_the_package(step: int) -> None:
    data = random.Random(5).randbytes(300) * 1000
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert _content(frame, step) == (data, True)
    assert _content(frame[:-20], step)[1]  # cut off: the caller knows where frames end
    checked = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(data))
    assert _content(bytes(checked), step) == (data, True)
    checked[-1] ^= 0xFF
    assert _content(bytes(checked), step) == (data, False)  # all that came before the damage
    assert _content(b"no frame", step) == (b"", False)


def test_blocks_before_a_damaged_one_come_out_whole() -> None:
    blocks = [random.Random(6).randbytes(size) for size in (70_000, 1, 131_072, 5)]
    frame = b"\x28\xb5\x2f\xfd\0\x50" + b"".join((len(b) << 3).to_bytes(3, "little") + b for b in blocks)
    for step in (999, 4096, 131_072):
        assert _content(frame + b"\x07\0\0", step) == (b"".join(blocks), False)
        assert _content(frame[:6] + b"\x07\0\0", step) == (b"", False)
