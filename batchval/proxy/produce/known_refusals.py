"""Refusals that took long to find, by sender: the same batch from the same sender is not read again.

    a batch is refused after much work ──▶ add(sender, place, refusal)
    a batch of a sender that has any   ──▶ of(sender)[place], then its digest decides

``place`` is what the header of a batch says for nothing: its checksum, its size, the version of the
request. So a batch is hashed only where a sender has had one like it refused. The digest is keyed
and covers all bytes of the batch. What else a verdict depends on is in the refusal: the validator,
and the time (``verdicts.KnownRefusal``). Options belong to a ``Gate``, and so does this table:
nothing is left of it after a reload.

An acceptance is never remembered: what goes on to a broker has been read.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchval.proxy.produce.verdicts import KnownRefusal

__all__ = ["MAX_BYTES", "MAX_SENDERS", "MAX_SENDER_BYTES", "KnownRefusals", "Place"]

#: Bytes of memory of all refusals, and of those of one sender. A refusal takes some hundred bytes,
#: and 32 for each of at most 1,000 record errors.
MAX_BYTES: Final = 8 << 20
MAX_SENDER_BYTES: Final = 128 << 10
#: Senders that have any.
MAX_SENDERS: Final = 1_000
_DIGEST_SIZE: Final = 16
_KEY_SIZE: Final = 32

#: The checksum in a batch's header, its size, the version of the Produce request.
Place: TypeAlias = tuple[int, int, int]


class _OfSender:
    """The refusals of one sender, the oldest first, and the memory that they take."""

    __slots__ = ("refusals", "size")

    def __init__(self) -> None:
        self.refusals: dict[Place, KnownRefusal] = {}
        self.size = 0

    def drop(self, place: Place) -> int:
        """Forget one refusal; return the memory that it took."""
        found = self.refusals.pop(place, None)
        size = 0 if found is None else found.size
        self.size -= size
        return size


class KnownRefusals:
    """The refusals that one ``Gate`` remembers. For any thread."""

    def __init__(self) -> None:
        self._secret = os.urandom(_KEY_SIZE)
        self._lock = threading.Lock()
        # the sender that was refused last is the last one
        self._senders: OrderedDict[str, _OfSender] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        """Return the number of refusals."""
        with self._lock:
            return sum(len(one.refusals) for one in self._senders.values())

    @property
    def size(self) -> int:
        """Return the memory of all refusals."""
        return self._size

    def digest(self, batch: memoryview) -> bytes:
        """Return a digest of a batch at which nobody can aim without the secret of this table."""
        return hashlib.blake2b(batch, digest_size=_DIGEST_SIZE, key=self._secret).digest()

    def of(self, sender: str) -> Mapping[Place, KnownRefusal] | None:
        """Return the refusals of a sender; None: it has none."""
        found = self._senders.get(sender)
        return None if found is None else found.refusals

    def add(
        self, sender: str, place: Place, refusal: KnownRefusal
    ) -> Mapping[Place, KnownRefusal] | None:
        """Remember a refusal; return those of its sender.

        A sender that has as much as it may loses its own oldest ones.
        """
        if refusal.size > MAX_SENDER_BYTES:
            return self.of(sender)
        with self._lock:
            found = self._senders.setdefault(sender, _OfSender())
            self._senders.move_to_end(sender)
            self._size -= found.drop(place)
            while found.size + refusal.size > MAX_SENDER_BYTES:
                self._size -= found.drop(next(iter(found.refusals)))
            found.refusals[place] = refusal
            found.size += refusal.size
            self._size += refusal.size
            while len(self._senders) > MAX_SENDERS or self._size > MAX_BYTES:
                _, gone = self._senders.popitem(last=False)
                self._size -= gone.size
            return found.refusals

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._senders.clear()
            self._size = 0
