"""Every error of the package can be pickled, copied and compared, with all its attributes."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import batchval
from batchval.core.batches.batch import RecordBatch
from batchval.core.batches.result import RejectedBatch
from batchval.core.batches.validator import LogValidator
from batchval.errors import BatchvalError, ErrorCode
from batchval.network.errors import BrokerError, DisconnectError, broker_error
from batchval.optional import MissingExtraError
from batchval.producer.errors import (
    DeliveryError,
    DeliveryFailure,
    ProducerFencedError,
    RecordTooLargeError,
)
from batchval.protocol.errors import ProtocolError
from batchval.protocol.frames import FrameError, FrameSplitter
from batchval.proxy.settings.loading import ConfigError
from batchval.proxy.tls.handshakes import HandshakeError, NoHandshakeError
from tests.support.batches import NOW, batch

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


def all_errors() -> list[type[BatchvalError]]:
    """Return every subclass of BatchvalError in every module."""
    for module in pkgutil.walk_packages(batchval.__path__, "batchval."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

    def below(kind: type[BatchvalError]) -> Iterator[type[BatchvalError]]:
        yield kind
        for one in kind.__subclasses__():
            yield from below(one)

    found = {kind for kind in below(BatchvalError) if kind.__module__.startswith("batchval.")}
    return sorted(found, key=lambda kind: (kind.__module__, kind.__qualname__))


def name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def rejected() -> BatchvalError:
    with pytest.raises(RejectedBatch) as caught:
        LogValidator().check(batch(crc=1), now_ms=NOW).raise_for_error()
    return caught.value


def raised_by(call: Callable[[], Any]) -> BatchvalError:
    with pytest.raises(BatchvalError) as caught:
        call()
    return caught.value


#: errors whose classes take more than a message, made as the package makes them
MADE: dict[type[BatchvalError], Callable[[], BatchvalError]] = {
    RejectedBatch: rejected,
    DisconnectError: lambda: DisconnectError("closed by the broker", timed_out=True),
    FrameError: lambda: raised_by(lambda: FrameSplitter().feed(b"\0\0\0\2hi\x16\x03\x01\0\0")),
    ConfigError: lambda: ConfigError(["a.yaml:3: no listener", "a.yaml:7: no upstream"]),
    HandshakeError: lambda: HandshakeError("timeout", "no TLS handshake within 10 s"),
    NoHandshakeError: lambda: NoHandshakeError("client", "the client sent nothing"),
    MissingExtraError: lambda: MissingExtraError("batchval.audit", "pyarrow", "audit"),
    DeliveryError: lambda: DeliveryError(
        3, (DeliveryFailure("t", 0, 3, RecordTooLargeError("too large")),)
    ),
    ProducerFencedError: lambda: ProducerFencedError(90, "InitProducerId: PRODUCER_FENCED"),
}
CLASSES = all_errors()


def made(kind: type[BatchvalError]) -> BatchvalError:
    if kind in MADE:
        return MADE[kind]()
    if issubclass(kind, BrokerError):
        codes = (code for code in ErrorCode if type(broker_error(code, "Produce")) is kind)
        return broker_error(next(codes), "Produce", "not now")
    if issubclass(kind, ProtocolError):
        return kind("a count of -2", 17)
    return kind("what is wrong, 'value', what is allowed")


def test_all_were_found() -> None:
    assert {BatchvalError, *MADE} <= set(CLASSES)
    assert len(CLASSES) > 40


@pytest.mark.parametrize("kind", CLASSES, ids=name_of)
def test_pickled_copied_and_compared(kind: type[BatchvalError]) -> None:
    error = made(kind)
    error.add_note("seen by a worker")
    twins = [pickle.loads(pickle.dumps(error, protocol)) for protocol in PROTOCOLS]
    twins += [copy.copy(error), copy.deepcopy(error)]
    for twin in twins:
        assert type(twin) is kind
        assert twin is not error
        assert (twin, twin.args, vars(twin)) == (error, error.args, vars(error))
        assert (str(twin), repr(twin), hash(twin)) == (str(error), repr(error), hash(error))
        for name in ("errno", "strerror", "filename"):
            assert getattr(twin, name, None) == getattr(error, name, None)
        assert twin != kind.__new__(kind, "another")


@pytest.mark.parametrize("kind", CLASSES, ids=name_of)
def test_a_class_that_takes_more_than_a_message_is_built_as_the_package_builds_it(
    kind: type[BatchvalError],
) -> None:
    """Require an entry in ``made`` for a class with an ``__init__`` of its own."""
    own = next(base for base in kind.__mro__ if "__init__" in vars(base))
    builders = {*MADE, BrokerError, ProtocolError}
    assert not own.__module__.startswith("batchval.") or any(
        issubclass(kind, one) for one in builders
    )


def test_errors_of_real_calls() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: LogValidator().check(b"", now_ms="1"),  # type: ignore[arg-type]
        lambda: LogValidator(mode="loose"),  # type: ignore[arg-type]
        lambda: RecordBatch(b"no batch"),
    ]
    for call in calls:
        error = raised_by(call)
        assert pickle.loads(pickle.dumps(error)) == error


def test_errors_that_differ() -> None:
    one, other = DisconnectError("closed", timed_out=True), DisconnectError("closed")
    assert one != other
    assert BatchvalError("closed") != other
    assert other != "closed"
    assert {one, DisconnectError("closed", timed_out=True)} == {one}
    assert hash(BatchvalError(["no", "hash"])) == hash(BatchvalError(["no", "hash"]))
