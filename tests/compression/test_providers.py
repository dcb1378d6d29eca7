"""Choosing a provider, finding its functions, and what the packages answer to damage."""

from __future__ import annotations

import ctypes
import os
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


def test_zstd_frames_through_the_package() -> None:
    data = bytes(100_000)
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert packages.zstd_frame(frame, 200_000) == (data, True)
    limited = packages.zstd_frame(frame, 20_000)
    assert limited.ok
    assert 20_000 < len(limited.data) <= 20_000 + 2 * 16_384
    checked = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(data))
    assert packages.zstd_frame(bytes(checked), 200_000) == (data, True)
    checked[-1] ^= 0xFF
    assert not packages.zstd_frame(bytes(checked), 200_000).ok
    assert packages.zstd_frame(b"no frame", 100) == (b"", False)
