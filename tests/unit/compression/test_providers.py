"""Choosing a provider, finding its functions, and what the packages answer to damage."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.block
import pytest
import zstandard

from batchval import compression
from batchval.compression import native, native_pointers, packages
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError
from batchval.policy import TopicPolicy
from tests.support.batches import LZ4, NOW, ZSTD, batch, record, records

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = compression.provider()
    yield
    compression.use(before)


@pytest.mark.parametrize("name", compression.PROVIDERS)
def test_use(name: str) -> None:
    assert compression.use(name) == compression.provider() == name
    described = compression.describe()
    assert set(described) == {"gzip", "snappy", "lz4", "zstd"}
    assert (described["gzip"], described["snappy"]) == ("batchval inflate", "batchval snappy")
    for codec in ("lz4", "zstd"):
        assert ("for Python" in described[codec]) == (name == "packages")
        assert ("lib" in described[codec]) == (name == "native")
    for codec in (LZ4, ZSTD):
        assert LogValidator().check(batch(records(50), codec=codec), now_ms=NOW).ok


def test_no_provider() -> None:
    before = compression.provider()
    for name in ("Native", "", "libdeflate", 5):
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


@pytest.mark.parametrize(
    ("value", "expected"), [("packages", "packages"), ("native", "native"), ("", None)]
)
def test_the_environment_chooses(value: str, expected: str | None) -> None:
    command = "from batchval import compression; print(compression.provider())"
    environment = os.environ | {"BATCHVAL_CODECS": value}
    done = subprocess.run(
        [sys.executable, "-c", command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == (expected or compression.use())


def test_the_environment_chooses_wrongly() -> None:
    environment = os.environ | {"BATCHVAL_CODECS": "zlib"}
    command = [sys.executable, "-c", "import batchval.compression"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "BATCHVAL_CODECS must be one of native, packages" in done.stderr


# ---- finding functions ---------------------------------------------------------------------------


def test_what_is_found_works() -> None:
    found = native.find()
    assert set(found.addresses) == {*native._LZ4, *native._ZSTD}
    assert all(found.addresses.values())
    assert set(found.origins) == {"lz4", "zstd"}
    assert len(found.libraries) == 2


def only(path: str) -> Any:
    return lambda modules, host: iter([(path, "test")])


@pytest.mark.parametrize(
    "path", ["/nowhere/liblz4.so", __file__, ctypes.util.find_library("c") or "libc.so.6"]
)
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


# ---- packages ------------------------------------------------------------------------------------


def test_lz4_blocks_through_the_package() -> None:
    data = bytes(range(256)) * 40
    packed = lz4.block.compress(data, store_size=False)
    assert packages.lz4_block(packed, len(data)) == data
    assert packages.lz4_block(packed, len(data) + 1000) == data
    for block, capacity in ((packed, len(data) - 1), (packed[:-3], len(data)), (b"\xff" * 20, 100)):
        with pytest.raises(packages.LZ4_ERRORS):
            packages.lz4_block(block, capacity)


def _content(frame: bytes, step: int, is_cut_off: bool = False) -> tuple[bytes, bool]:
    """All that the package makes of a frame, read ``step`` bytes at a time, and whether it was
    undamaged.
    """
    decoder = packages.ZstdFrame(frame, is_cut_off)
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


def test_two_frames_that_are_open_do_not_share_a_decompressor() -> None:
    contents = [random.Random(n).randbytes(50_000) for n in range(3)]
    frames = [zstandard.ZstdCompressor().compress(content) for content in contents]
    assert [_content(frame, 16384)[0] for frame in frames] == contents  # some are idle now
    decoders = [packages.ZstdFrame(frame) for frame in frames]
    target, found = memoryview(bytearray(16384)), [b"", b"", b""]
    for _ in range(6):  # they end in turns, and are asked for more than there is
        for n, decoder in enumerate(decoders):
            found[n] += target[: decoder.readinto(target)]
    assert found == contents


def test_a_decompressor_is_kept_for_frames_of_its_sizes_alone() -> None:
    # A frame whose block is larger than it says: a new decompressor has no room for it.
    small = bytes.fromhex(
        "28b52ffd8021420000005002002a0010000630303018636c69636b3a34323a707269002a001402066b6166183030"
        "3031582a00060406657600006c002a00060406657665186f726465723a65752d77657300"
    )
    packages._idle.clear()
    expected = _content(small, 16384)
    assert not expected[1]
    large = zstandard.ZstdCompressor().compress(bytes(range(256)) * 100)
    assert _content(large, 1000)[1]
    assert len(packages._idle) == 1
    assert _content(small, 16384) == expected
    for size in range(1, 10):  # frames of many sizes
        assert _content(zstandard.ZstdCompressor().compress(bytes(size * 1000)), 16384)[1]
        assert len(packages._idle) <= packages._MAX_IDLE


def test_the_decompressor_that_was_used_longest_ago_makes_room() -> None:
    frames = [
        zstandard.ZstdCompressor().compress(bytes(size * 1000))
        for size in range(1, packages._MAX_IDLE + 2)
    ]
    packages._idle.clear()
    for frame in (*frames[:-1], frames[0], frames[-1]):
        assert _content(frame, 16384)[1]
    kept = [packages._sizes_of(frame) in packages._idle for frame in frames]
    assert kept == [True, False, *[True] * (packages._MAX_IDLE - 1)]


def test_decompressors_of_large_and_of_damaged_frames_are_not_kept() -> None:
    packages._idle.clear()
    frame = zstandard.ZstdCompressor().compress(bytes(packages._MAX_KEPT + 1))
    assert len(_content(frame, 131072)[0]) == packages._MAX_KEPT + 1
    assert not _content(b"no frame", 16384)[1]
    assert packages._idle == {}


@pytest.mark.parametrize("step", [1000, 16384, 131072])
@pytest.mark.parametrize("last", [1, 1000, 131072])
def test_the_last_block_of_a_frame_that_is_cut_off(step: int, last: int) -> None:
    """A read that the block before fills to its end: the package says then that all has come."""
    data = random.Random(8).randbytes(131072 // step * step) + bytes(last)
    compressor = zstandard.ZstdCompressor().compressobj()
    frame = b""
    for block in (data[:-last], data[-last:]):
        frame += compressor.compress(block) + compressor.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    assert _content(frame, step, is_cut_off=True) == (data, True)


def test_blocks_before_a_damaged_one_come_out_whole() -> None:
    blocks = [random.Random(6).randbytes(size) for size in (70_000, 1, 131_072, 5)]
    frame = b"\x28\xb5\x2f\xfd\0\x50" + b"".join(
        (len(b) << 3).to_bytes(3, "little") + b for b in blocks
    )
    for step in (999, 4096, 131_072):
        assert _content(frame + b"\x07\0\0", step) == (b"".join(blocks), False)
        assert _content(frame[:6] + b"\x07\0\0", step) == (b"", False)


# ---- the self-test -------------------------------------------------------------------------------


class Spy:
    """A library of which one function answers something else."""

    def __init__(self, library: ctypes.CDLL, wrong: str = "", answer: int = 0) -> None:
        self._library = library
        self._wrong = wrong
        self._answer = answer
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)

        class Function:
            def __setattr__(_, key: str, value: Any) -> None:
                setattr(function, key, value)

            def __call__(_, *arguments: Any) -> Any:
                self.called.add(name)
                answer = function(*arguments)
                return self._answer if name == self._wrong else answer

        return Function()


def test_the_self_test_calls_every_function_that_is_bound() -> None:
    lz4_library, zstd_library = (Spy(library) for library in native.find().libraries)
    assert native._lz4_works(lz4_library)  # type: ignore[arg-type]
    assert native._zstd_works(zstd_library)  # type: ignore[arg-type]
    assert lz4_library.called == set(native._LZ4)
    assert zstd_library.called == set(native._ZSTD)


@pytest.mark.parametrize("answer", [-1 & 0xFFFFFFFF_FFFFFFFF, 0, 64])
@pytest.mark.parametrize("name", [*native._LZ4, *native._ZSTD])
def test_the_self_test_sees_one_function_that_answers_wrongly(name: str, answer: int) -> None:
    if (name, answer) in {("ZSTD_createDCtx", 64), ("ZSTD_createDCtx", -1 & 0xFFFFFFFF_FFFFFFFF)}:
        return  # a pointer to nowhere
    index = 0 if name in native._LZ4 else 1
    works = native._zstd_works if index else native._lz4_works
    right = {"ZSTD_freeDCtx": 0, "ZSTD_decompressBegin": 0}.get(name)
    if name in ("ZSTD_freeDCtx", "ZSTD_decompressBegin") and answer == 64:
        right = 64  # no error
    spy = Spy(native.find().libraries[index], name, answer)
    assert works(spy) == (right == answer)  # type: ignore[arg-type]


def test_the_self_test_sees_damage_that_goes_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = native.find().libraries
    monkeypatch.setattr(native, "_LZ4_DAMAGED", native._LZ4_BLOCK)
    monkeypatch.setattr(native, "_ZSTD_DAMAGED", native._ZSTD_FRAME)
    assert not native._lz4_works(libraries[0])
    assert not native._zstd_works(libraries[1])


# ---- switching -----------------------------------------------------------------------------------


@pytest.mark.untraced
@pytest.mark.long
def test_the_provider_may_change_while_batches_are_judged() -> None:
    """A call reads the provider once: one that asked again for each block took the middle of a
    frame for its start.

    The stages judge again what the fast path refuses, so a wrong verdict took two switches: each as
    short as can be."""
    # some 230 blocks
    large = [record(i, value=random.Random(i % 97).randbytes(3000)) for i in range(10_000)]
    good = batch(large, codec=ZSTD)
    done = threading.Event()
    answers: list[str] = []
    compression.use("native")
    addresses = native.find().addresses

    def judge() -> None:
        validator = LogValidator(TopicPolicy(max_message_bytes=2**30))
        while not done.is_set():
            answers.append(repr(validator.check(good, now_ms=NOW)))

    threads = [threading.Thread(target=judge) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        while len(answers) < 500:
            for _ in range(500):
                native_pointers.bind({})
                native_pointers.bind(addresses)
            time.sleep(0.0001)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert set(answers) == {"<ValidationResult ok path=shallow records=10000 reports=[]>"}


def test_the_provider_changes_within_a_call() -> None:
    """Without a race: Python code runs within the call, between two frames."""
    half = b"".join(record(i, value=bytes(100)) for i in range(200))
    frames = [
        zstandard.ZstdCompressor(write_content_size=False).compress(part)
        for part in (half[:9000], half[9000:])
    ]
    data = batch(
        [record(i, value=bytes(100)) for i in range(200)], codec=ZSTD, payload=b"".join(frames)
    )
    seen: list[int] = []
    read = packages.ZstdFrame.readinto

    def read_and_switch(self: packages.ZstdFrame, target: memoryview) -> int:
        seen.append(1)
        compression.use("native")
        return read(self, target)

    compression.use("packages")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(packages.ZstdFrame, "readinto", read_and_switch)
        assert LogValidator().check(data, now_ms=NOW).ok
    assert compression.provider() == "native"
    assert len(seen) >= 2, "the second frame was decompressed by another provider"
