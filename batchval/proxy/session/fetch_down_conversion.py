"""Answers to Fetch 10, lowered to what consumers of versions 0 to 3 read.

    read    the answer's partitions
    convert batches become message sets, a slice at a time, in a thread
    finish  the client's answer

``old_fetches`` says where the log goes on after batches of which nothing can be expressed.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from batchval.core.convert.aborted import AbortedTransactions
from batchval.core.convert.down_conversion import NotConverted, down_convert
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frame_memory import Charge, CountedBytes
from batchval.protocol.message import Chunks
from batchval.protocol.old_fetch import (
    AnswerWriter,
    OldFetch,
    OldFetchedPartition,
    WantedPartition,
    read_answer,
)
from batchval.proxy.produce.validation_queue import SLICE_S
from batchval.proxy.session.old_fetches import MAX_FAULTS, Places
from batchval.proxy.session.requests import Answer, Lowering, Requests

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["FetchConversion", "FetchFacts", "is_empty"]

#: Bytes of message sets in one answer, but for a batch: what comes after them is fetched again.
MAX_CONVERTED_BYTES: Final = 16 << 20
#: Bytes of message sets that one call makes.
SLICE_BYTES: Final = 256 << 10
#: Bytes that one call reads, decompresses and compresses again: about 5 ms. One batch is not
#: divided.
SLICE_WORK: Final = 256 << 10
#: An answer is heavy from this size on.
HEAVY_BYTES: Final = 1 << 20
#: And where one of its batches takes more work than this: up to 15 ms (gzip).
LIGHT_WORK: Final = 512 << 10
#: Batches of one answer that cannot be converted and get a log line each: about 0.5 ms.
MAX_LINES: Final = 10
#: Bytes of memory that an entry of FetchFacts.offsets takes.
OFFSET_BYTES: Final = 150

_ANSWER_HEADER: Final = 8
_CORRUPT_MESSAGE: Final = 2
_OFFSET_OUT_OF_RANGE: Final = 1
_MESSAGE_HEAD: Final = struct.Struct(">qi")  # offset, size


class FetchFacts:
    """A request as a session keeps it until its answer comes: its bytes, since its partitions as
    objects take six times as much. A broker may take as long as the client wants it to.

    ``offsets``  that the broker was asked for, where they are not the client's, by the place of the
                 partition in the request
    """

    __slots__ = ("_body", "_max_partitions", "_version", "offsets")

    def __init__(
        self, body: memoryview, version: int, max_partitions: int, offsets: dict[int, int]
    ) -> None:
        self._body = bytes(body)
        self._version = version
        self._max_partitions = max_partitions
        self.offsets = offsets

    @property
    def held(self) -> int:
        """Return about how many bytes of memory this takes."""
        return len(self._body) + OFFSET_BYTES * len(self.offsets)

    def request(self) -> OldFetch:
        """Return the request, read again."""
        return OldFetch(self._body, self._version, max_partitions=self._max_partitions)

    def wanted(self, request: OldFetch) -> dict[tuple[str, int], tuple[WantedPartition, int]]:
        """Return what was wanted of each partition: brokers answer errors first."""
        return {
            (wanted.topic, wanted.partition): (wanted, self.offsets.get(i, wanted.offset))
            for i, wanted in enumerate(request.partitions)
        }


class _Fault(NamedTuple):
    """A batch that cannot be converted."""

    topic: str
    partition: int
    offset: int
    reason: str


def is_empty(body: memoryview) -> bool:
    """Return whether no partition of an answer has records. Raises ProtocolError."""
    return not any(fetched.records for fetched in read_answer(body).partitions)


def has_offset_from(output: bytes, offset: int) -> bool:
    """Return whether a message of a message set has this offset or a higher one."""
    at = 0
    while at + _MESSAGE_HEAD.size <= len(output):
        last, size = _MESSAGE_HEAD.unpack_from(output, at)
        if last >= offset:
            return True
        at += _MESSAGE_HEAD.size + size
    return False


class FetchConversion(Lowering):
    """A job that converts one answer, for ``ValidationQueue``.

    ``held``  bytes that it holds: the broker's answer, and what has been made of it
    """

    def __init__(self, requests: Requests, answer: Answer, frame: memoryview) -> None:
        super().__init__(requests, answer, frame)
        self._size = len(frame)
        self._facts: FetchFacts = answer.facts
        validation = requests.proxy.options.settings.validation
        self._max_decompressed = validation.max_decompressed_bytes
        self._steps: Iterator[bool] | None = None
        self._made = 0
        # for the loop: the session's memory is not touched in a thread
        self._continues: Places = {}
        self._forgotten: list[WantedPartition] = []
        self._faults: list[_Fault] = []  # the first MAX_FAULTS of them
        self._faulty = 0

    @property
    def size(self) -> int:
        """Return the size of the broker's answer."""
        return self._size

    def work(self) -> tuple[str, float]:
        """Convert for one slice, in a thread. Raises ProtocolError."""
        began = time.thread_time()
        if self.cancelled:
            return "done", 0.0
        if self.size > HEAVY_BYTES and not self.heavy:
            return "heavy", 0.0
        steps = self._steps = self._steps or self._convert()
        word = "done"
        for is_heavy in steps:
            if self.cancelled:
                self._steps = None  # it was set after ``cancel``
                break
            if is_heavy and not self.heavy:
                word = "heavy"
                break
            if time.thread_time() - began > SLICE_S:
                word = "more"
                break
        return word, time.thread_time() - began

    def cancel(self) -> None:
        """Note that nobody waits for it: reference counts free it, as its steps know it no more."""
        super().cancel()
        self._steps = None

    def paused(self) -> None:
        """Count what has been made so far."""
        self.requests.conversion_grew(self, len(self._frame) + self._made)
        super().paused()

    def finish(self) -> Chunks:
        """Return the client's answer, and note what the session has to know."""
        requests, fetches = self.requests, self.requests.old_fetches
        for wanted in self._forgotten:
            fetches.forget(wanted)
        fetches.note(self._continues)
        requests.counters.fetches_unconverted_total += self._faulty
        self._log()
        return self._ready

    def _log(self) -> None:
        """Log the faults that are new, MAX_LINES at most, and how many batches are at fault."""
        requests, fetches = self.requests, self.requests.old_fetches
        lines = 0
        for fault in self._faults:
            if lines == MAX_LINES:
                break
            if not fetches.is_new_fault(fault.topic, fault.partition, fault.offset):
                continue
            lines += 1
            place = f"topic {fault.topic}, partition {fault.partition}, offset {fault.offset}"
            text = f"{place}: {fault.reason}".replace("{", "{{").replace("}", "}}")
            requests.log_fault(f"a batch of {{}} cannot be converted for an old consumer: {text}")
        if lines == MAX_LINES and self._faulty > lines:
            requests.log_fault(
                f"{self._faulty} batches of one answer of {{}} cannot be converted for an old "
                f"consumer; {lines} of them were logged"
            )

    # ---- in a thread -----------------------------------------------------------------------------

    def _convert(self) -> Iterator[bool]:
        """Convert the partitions; yield between slices whether the next batch is heavy."""
        request = self._facts.request()
        read = read_answer(self._frame[_ANSWER_HEADER:])
        writer = AnswerWriter(read, request.version, self.answer.correlation_id)
        places = self._facts.wanted(request)
        for fetched in read.partitions:
            place = places.get((fetched.topic, fetched.partition))
            if place is None:
                raise ProtocolError(
                    f"partition {fetched.partition} of the answer was not asked for"
                )
            wanted, offset = place
            code = read.error_code or fetched.error_code
            if code == _OFFSET_OUT_OF_RANGE:
                self._forgotten.append(wanted)
            output: list[Buffer] = []
            if fetched.records:
                records = _Records(fetched, wanted, offset, request, self._max_decompressed)
                records.is_heavy = self.heavy
                for made in records.convert(MAX_CONVERTED_BYTES - self._made):
                    self._made += made
                    yield records.is_heavy
                output = records.output
                if records.fault is not None:
                    self._faulty += 1
                    if len(self._faults) < MAX_FAULTS:
                        self._faults.append(_Fault(wanted.topic, wanted.partition, *records.fault))
                    if not output and not code:
                        code = _CORRUPT_MESSAGE
                elif records.is_barren and records.next_offset > offset:
                    self._continues[wanted.topic, wanted.partition] = (
                        wanted.offset,
                        records.next_offset,
                    )
            writer.put(fetched, code, output)
        self._ready = writer.finish()
        # free the broker's answer: the loop may ask for this one much later
        self._frame = memoryview(b"")


class _Records:
    """The batches of one partition on their way to message sets.

    ``next_offset``  after the last batch that was read
    ``fault``        offset and reason of a batch that cannot be converted
    ``is_heavy``     whether batches may take more than LIGHT_WORK; set where one does, which is
                     converted after the next yield
    """

    def __init__(
        self,
        fetched: OldFetchedPartition,
        wanted: WantedPartition,
        offset: int,
        request: OldFetch,
        most: int,
    ) -> None:
        self.next_offset = offset
        self.fault: tuple[int, str] | None = None
        self.is_heavy = False
        self._fetched = fetched
        self._wanted = wanted
        self._offset = offset
        self._request = request
        self._max_decompressed = most
        self._pieces: list[memoryview] = []
        self._limit = max(0, wanted.max_bytes)

    def convert(self, most_bytes: int) -> Iterator[int]:
        """Convert a slice, yield how many bytes of message sets it made, and so on."""
        records, position, size = self._fetched.records, 0, 0
        aborted, charge = AbortedTransactions(self._fetched.aborted), Charge()
        assert records is not None
        if most_bytes <= 0:
            return
        while position < len(records) and self.fault is None:
            # the first batch alone: it may be larger than what the client asked for
            most = min(SLICE_BYTES, most_bytes - size, self._limit - size) if size else 1
            try:
                made = down_convert(
                    records,
                    self._request.magic,
                    first_offset=self._offset,
                    max_decompressed_bytes=self._max_decompressed,
                    aborted=aborted,
                    position=position,
                    max_bytes=most,
                    check_crcs=True,
                    max_work=SLICE_WORK,
                    max_batch_work=None if self.is_heavy else LIGHT_WORK,
                    on_held=charge.count,
                )
            except NotConverted as error:
                made = error.converted
                if error.is_heavy:
                    self.is_heavy = True
                else:
                    self.fault = max(made.next_offset, self.next_offset), str(error)
            charge.count(0)
            # compaction leaves batches whose records are all below the offset that was asked for
            if made.output and (size or has_offset_from(made.output, self._offset)):
                # the budget counts it until the client has taken it
                self._pieces.append(memoryview(CountedBytes(made.output)))
                if not size and made.position <= self._wanted.max_bytes:
                    # a batch that fits the client's limit is sent whole, however it grows
                    self._limit = max(self._limit, len(made.output))
                size += len(made.output)
            if made.position > position:
                self.next_offset = made.next_offset
            position = made.position
            yield len(made.output)
            if made.is_partial or size >= min(most_bytes, self._limit):
                return

    @property
    def is_barren(self) -> bool:
        """Return whether nothing that was read can be expressed."""
        return not self._pieces

    @property
    def output(self) -> list[Buffer]:
        """Return the message sets, with a partial message at the end below version 3."""
        left = self._limit if self._request.is_cut else sys.maxsize
        cut: list[Buffer] = []
        for piece in self._pieces:
            if left <= 0:
                break
            cut.append(piece[:left])
            left -= len(piece)
        return cut
