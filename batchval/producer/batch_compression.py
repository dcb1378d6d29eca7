"""Compression of batches: short work in the event loop, long work in threads, some ahead of time.

A batch's records (no header) → the codec's bytes. What a byte costs is measured with each batch, in
time of the thread that compresses, so that levels and kinds of records need no table; before the
first one, ``_NS_A_BYTE`` is believed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from batchval.compression.compressors import compress_in_one_piece as compress
from batchval.producer.batch import ProducerBatch
from batchval.types import CompressionType

__all__ = ["HOLDS_UP_NS", "Compressing"]

#: What would take longer than this is done in a thread. Each thread costs turns of the GIL: at half
#: of this, zstd in batches of 16 kB has two thirds of the rate that it has in the loop.
HOLDS_UP_NS: Final = 1_000_000
_NS_A_BYTE: Final = {
    CompressionType.GZIP: 30.0,
    CompressionType.SNAPPY: 3.0,
    CompressionType.LZ4: 3.0,
    CompressionType.ZSTD: 6.0,
}
_WEIGHT: Final = 0.25  # of the last batch in what a byte costs


def _timed(codec: int, records: memoryview, level: int | None) -> tuple[bytes, int]:
    begin = time.thread_time_ns()
    payload = compress(codec, records, 2, level)
    return payload, time.thread_time_ns() - begin


class Compressing:
    """The compression of one producer: ``finish`` takes bytes, ``done`` ends a thread's batch."""

    def __init__(
        self,
        codec: CompressionType,
        level: int | None,
        threads: int,
        finish: Callable[[ProducerBatch, bytes | None], None],
        done: Callable[[ProducerBatch, BaseException | None], None],
    ) -> None:
        self._codec, self._level = codec, level
        self._finish, self._done = finish, done
        self.threads = threads if codec else 0
        self.under_way = 0
        self.in_threads = 0  # batches, since the producer was made
        self._ns_a_byte = _NS_A_BYTE.get(codec, 0.0)
        self._pool: ThreadPoolExecutor | None = None

    def holds_up(self, batch: ProducerBatch) -> bool:
        """Return whether the batch takes so long to compress that it belongs into a thread."""
        return self.threads > 0 and batch.builder.size * self._ns_a_byte > HOLDS_UP_NS

    def finished(self, batch: ProducerBatch) -> bool:
        """Return whether the batch can be sent; if not, a thread compresses it now.

        Raises the codec's error.
        """
        if batch.builder.is_finished:
            return True
        if batch.compressing or self.holds_up(batch):
            self.begin(batch)
            return False
        payload, took = (
            _timed(self._codec, batch.builder.payload(), self._level) if self._codec else (None, 0)
        )
        if payload is not None:
            self._note(batch.builder.size, took)
        self._finish(batch, payload)
        return True

    def begin(self, batch: ProducerBatch) -> None:
        """Compress a batch in a thread. No record may be added to it any more."""
        if batch.compressing:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="batchval-compress")
        batch.closed = batch.compressing = True
        self.under_way += 1
        self.in_threads += 1
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(
            self._pool, _timed, self._codec, batch.builder.payload(), self._level
        )
        future.add_done_callback(partial(self._compressed, batch))

    def _compressed(self, batch: ProducerBatch, future: asyncio.Future[tuple[bytes, int]]) -> None:
        batch.compressing = False
        self.under_way -= 1
        error: BaseException | None = None
        if not future.cancelled():
            error = future.exception()
            if error is None and not batch.is_done:
                payload, took = future.result()
                self._note(batch.builder.size, took)
                self._finish(batch, payload)
        self._done(batch, error)

    def _note(self, size: int, took_ns: int) -> None:
        self._ns_a_byte += _WEIGHT * (took_ns / size - self._ns_a_byte)

    def close(self) -> None:
        """Cancel all work that no thread has begun."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
