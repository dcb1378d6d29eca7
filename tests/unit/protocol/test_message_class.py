"""Message classes behave as dataclasses with slots do, and cost their import little."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from dataclasses import field
from typing import ClassVar

import pytest

from batchval.protocol.message_class import message_class, prepare
from batchval.protocol.messages import ProduceRequest


@message_class
class Inner:
    """One struct."""

    number: int = -1
    names: list[str] | None = field(default_factory=list)


@message_class
class Outer:
    """Another, with all kinds of fields."""

    key: ClassVar[int] = 7
    needed: int
    inner: Inner = field(default_factory=Inner)
    nullable: str | None = None
    version: int = field(kw_only=True)

    def twice(self) -> int:
        return 2 * self.needed


def test_defaults_are_fresh_and_none_stays_none() -> None:
    one, two = Outer(1, version=3), Outer(needed=1, version=3)
    assert one == two
    assert one.inner is not two.inner
    assert (one.inner.number, one.inner.names) == (-1, [])
    assert (one.nullable, one.version, one.twice(), one.key) == (None, 3, 2, 7)
    assert Inner(names=None).names is None
    assert Inner(5, ["a"]) == Inner(names=["a"], number=5)
    assert Inner() != Inner(0)
    assert Inner() != Outer(1, version=3)


@pytest.mark.parametrize(
    ("args", "more"),
    [((), {}), ((1,), {}), ((1, Inner(), "x", 3), {}), ((1,), {"version": 1, "other": 2})],
)
def test_wrong_arguments_are_refused(args: tuple[object, ...], more: dict[str, int]) -> None:
    with pytest.raises(TypeError):
        Outer(*args, **more)  # type: ignore[call-overload]


def test_slots_repr_hash_and_copies() -> None:
    one = Outer(1, Inner(2, ["a"]), version=3)
    assert (
        repr(one) == "Outer(needed=1, inner=Inner(number=2, names=['a']), nullable=None, version=3)"
    )
    with pytest.raises(AttributeError):
        one.other = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))
    assert copy.deepcopy(one).inner is not one.inner


def test_a_generated_request_knows_its_fields() -> None:
    request = ProduceRequest("id", 1, 30_000, api_version=9)
    assert (request.transactional_id, request.acks, request.topic_data, request.api_version) == (
        "id",
        1,
        [],
        9,
    )
    assert not dataclasses.is_dataclass(request)
    with pytest.raises(TypeError, match="api_version"):
        ProduceRequest()  # type: ignore[call-arg]


@pytest.mark.parametrize("client", ["fetch", "producer", "network.client"])
def test_what_a_client_s_import_makes(client: str) -> None:
    """No dataclass for a message, no metadata of packages, no messages of other clients."""
    code = (
        "import dataclasses, sys\n"
        "made, real = [], dataclasses._process_class\n"
        "def counted(cls, *more): made.append(cls.__module__); return real(cls, *more)\n"
        "dataclasses._process_class = counted\n"
        f"import batchval.{client}\n"
        "print(*made, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.split()
    made, loaded = found[: found.index("sys")], set(found)
    assert "batchval.protocol.messages.api_versions" in loaded
    assert not [name for name in made if name.startswith("batchval.protocol.messages")]
    assert len(made) < 45
    assert not loaded & {"importlib.metadata", "email", "uvloop", "pyarrow"}
    others = {"fetch": "produce", "producer": "fetch", "network.client": "fetch"}
    assert f"batchval.protocol.messages.{others[client]}" not in loaded


def test_two_threads_may_make_the_first_object() -> None:
    """The ``__init__`` that a thread has entered may be replaced before the thread goes on."""

    @message_class
    class Message:
        number: int = -1

    first = Message.__init__
    assert Message(3).number == 3
    assert Message.__init__ is not first
    late = object.__new__(Message)
    first(late, 4)
    assert late.number == 4


def test_a_program_may_compile_all_before_the_first_object() -> None:
    @message_class
    class Message:
        number: int = -1

    first = Message.__init__
    prepare()
    assert Message.__init__ is not first
    assert (Message().number, Message(3).number) == (-1, 3)
