"""The cache of a registry's answers: known ids, missing ids, and the rate of requests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from batchval.schema_registry import (
    RegistryAnswerError,
    RegistryBusyError,
    RegistryClient,
    RegistryError,
    SubjectIds,
    ids,
)
from batchval.schema_registry.registry_client import MAX_ANSWER_BYTES
from tests.support.proxy import eventually
from tests.unit.schema_registry.scripted import ScriptedRegistry, answer


@pytest.fixture
def registry() -> Iterator[ScriptedRegistry]:
    with ScriptedRegistry() as running:
        running.subjects = {"s": {1: 7, 2: 9}, "other": {1: 9}}
        yield running


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture
def subjects(registry: ScriptedRegistry, now: list[float]) -> Iterator[SubjectIds]:
    found = SubjectIds(
        RegistryClient(registry.url), absent_s=5.0, retry_s=2.0, clock=lambda: now[0]
    )
    yield found
    found.close()


def result(answered: Future[frozenset[str]]) -> frozenset[str]:
    return answered.result(10)


def test_an_id_is_asked_for_and_known_from_then_on(
    registry: ScriptedRegistry, subjects: SubjectIds
) -> None:
    assert subjects.ids("s") == frozenset()
    assert result(subjects.ask("s", 7)) == {"s"}
    assert subjects.ids("s") == {7}
    assert subjects.ids("other") == frozenset()
    assert result(subjects.ask("other", 9)) == {"s", "other"}
    assert subjects.ids("s") == {7, 9}  # for all subjects that are kept
    assert subjects.questions_total == 2


def test_an_id_that_is_not_there_is_asked_for_again_later(
    registry: ScriptedRegistry, subjects: SubjectIds, now: list[float]
) -> None:
    subjects.ids("s")
    assert not subjects.is_absent("s", 8)
    assert result(subjects.ask("s", 8)) == frozenset()
    assert subjects.is_absent("s", 8)
    assert not subjects.is_absent("other", 8)
    registry.subjects["s"][3] = 8
    now[0] += 5.0
    assert not subjects.is_absent("s", 8)
    assert result(subjects.ask("s", 8)) == {"s"}
    assert subjects.ids("s") == {8}


def test_one_question_at_a_time_for_an_id(registry: ScriptedRegistry, subjects: SubjectIds) -> None:
    registry.go_on.clear()
    subjects.ids("s")
    subjects.ids("other")
    asked = [subjects.ask(name, 9) for name in ("s", "other", "third") for _ in range(20)]
    assert len(set(map(id, asked))) == 1
    registry.go_on.set()
    assert result(asked[0]) == {"s", "other"}
    assert registry.asked == {"/schemas/ids/9/versions": 1}
    assert subjects.is_absent("third", 9)
    assert not subjects.is_absent("s", 9)


def test_while_it_is_down_known_ids_stay_and_questions_fail_at_once(
    registry: ScriptedRegistry,
    subjects: SubjectIds,
    now: list[float],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "batchval.schema_registry")
    subjects.ids("s")
    result(subjects.ask("s", 7))
    registry.raw = answer(503, b"")
    for _ in range(3):
        assert isinstance(subjects.ask("s", 9).exception(10), RegistryError)
    assert registry.asked["/schemas/ids/9/versions"] == 1
    assert subjects.is_down
    assert subjects.ids("s") == {7}
    registry.raw = None
    assert isinstance(subjects.ask("s", 9).exception(10), RegistryError)
    now[0] += 2.0
    assert result(subjects.ask("s", 9)) == {"s", "other"}
    assert not subjects.is_down
    assert [one.getMessage().partition(": ")[0] for one in caplog.records] == [
        "the schema registry does not answer",
        f"the schema registry {registry.url} answers again",
    ]
    assert subjects.failures_total == 1


def test_subjects_are_read_in_the_background_and_what_was_deleted_is_forgotten(
    registry: ScriptedRegistry,
) -> None:
    subjects = SubjectIds(RegistryClient(registry.url), refresh_s=0.05, retry_s=0.05)
    subjects.start()
    try:
        assert subjects.ids("s") == frozenset()
        eventually(lambda: subjects.ids("s") == {7, 9})
        assert isinstance(subjects.ids("s"), frozenset)
        asked = registry.asked["/subjects/s/versions/1"]
        registry.subjects["s"] = {2: 9, 3: 11}
        eventually(lambda: subjects.ids("s") == {9, 11})
        assert registry.asked["/subjects/s/versions/1"] == asked == 1  # ids stay
        registry.raw = answer(500, b"")
        eventually(lambda: subjects.is_down)
        time.sleep(0.1)
        assert subjects.ids("s") == {9, 11}
        del registry.subjects["s"]
        registry.raw = None
        eventually(lambda: subjects.ids("s") == frozenset())
    finally:
        subjects.close()


def test_an_id_that_is_found_while_versions_are_read_stays(
    registry: ScriptedRegistry, subjects: SubjectIds
) -> None:
    # The list of versions may be older than the answer about the id.
    subjects.ids("s")
    versions = subjects.client.versions

    def found_meanwhile(subject: str) -> list[int] | None:
        listed = versions(subject)
        registry.subjects["s"][3] = 12
        result(subjects.ask("s", 12))
        return listed

    subjects.client.versions = found_meanwhile  # type: ignore[method-assign]
    subjects.read("s")
    assert subjects.ids("s") == {7, 9, 12}
    subjects.client.versions = lambda _: [1]  # type: ignore[method-assign]
    subjects._clock = lambda: 2000.0
    subjects.read("s")
    assert subjects.ids("s") == {7}


def test_memory_is_bounded(
    registry: ScriptedRegistry, subjects: SubjectIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MAX_SUBJECTS", "MAX_ABSENT_IDS", "MAX_QUESTIONS"):
        monkeypatch.setattr(ids, name, 5)
    for n in range(20):
        subjects.ids(f"subject-{n}")
        result(subjects.ask("s", 100 + n))
    assert len(subjects) == 5
    assert len(subjects._absent) == 5
    registry.go_on.clear()
    asked = [subjects.ask("s", 200 + n) for n in range(9)]
    assert [isinstance(one.exception(0), RegistryBusyError) for one in asked[5:]] == [True] * 4
    registry.go_on.set()
    assert all(result(one) == frozenset() for one in asked[:5])
    assert not subjects._asked


FORBIDDEN = answer(403, b'{"error_code": 40301, "message": "User may not read this subject"}')
TOO_LONG = answer(200, b" " * (MAX_ANSWER_BYTES + 1))


@pytest.mark.parametrize("unusable", [FORBIDDEN, TOO_LONG], ids=["forbidden", "too long"])
def test_an_answer_about_one_id_does_not_stop_the_others(
    registry: ScriptedRegistry,
    subjects: SubjectIds,
    now: list[float],
    unusable: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    subjects.ids("s")
    registry.by_path["/schemas/ids/8/versions"] = unusable
    for _ in range(3):
        assert isinstance(subjects.ask("s", 8).exception(10), RegistryAnswerError)
        assert result(subjects.ask("s", 9)) == {"s", "other"}
    assert not subjects.is_down
    assert not subjects.is_absent("s", 8)
    assert registry.asked["/schemas/ids/8/versions"] == 1
    now[0] += 2.0
    assert isinstance(subjects.ask("s", 8).exception(10), RegistryAnswerError)
    assert registry.asked["/schemas/ids/8/versions"] == subjects.failures_total == 2
    assert len(caplog.records) == 1
    registry.by_path.clear()
    now[0] += 2.0
    assert result(subjects.ask("s", 8)) == frozenset()


def test_subjects_are_read_however_many_of_them_are_forbidden(registry: ScriptedRegistry) -> None:
    subjects = SubjectIds(RegistryClient(registry.url), refresh_s=0.05)
    names = [f"real-{n}" for n in range(8)]
    for n, name in enumerate(names):
        registry.subjects[name] = {1: 100 + n}
        registry.by_path[f"/subjects/forbidden-{n}/versions"] = FORBIDDEN
        subjects.ids(name)
        subjects.ids(f"forbidden-{n}")
    subjects.start()
    try:
        eventually(lambda: all(subjects.ids(name) for name in names))
        registry.subjects["real-7"][2] = 200
        eventually(lambda: subjects.ids("real-7") == {107, 200})
        assert not subjects.is_down
    finally:
        subjects.close()


def test_strangers_push_no_subject_out_and_are_read_once(
    registry: ScriptedRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "MAX_SUBJECTS", 20)
    monkeypatch.setattr(ids, "MAX_PASSED_SUBJECTS", 3)
    subjects = SubjectIds(RegistryClient(registry.url), refresh_s=0.05)
    for name in ("s", "other"):
        subjects.ids(name)
        subjects.read(name)
    for n in range(200):
        subjects.ids(f"stranger-{n}")
        assert len(subjects) <= 22
    subjects.start()
    try:
        eventually(lambda: not subjects._new)
        subjects.ids("stranger-last")
        eventually(lambda: registry.asked["/subjects/stranger-last/versions"])
        read = registry.asked["/subjects/s/versions"]
        eventually(lambda: registry.asked["/subjects/s/versions"] >= read + 3)
    finally:
        subjects.close()
    assert (subjects.ids("s"), subjects.ids("other")) == ({7, 9}, {9})
    assert {asked for path, asked in registry.asked.items() if "stranger" in path} == {1}


def test_questions_are_bounded_in_a_second(subjects: SubjectIds, now: list[float]) -> None:
    subjects.ids("s")
    subjects._rate._left = 3.0

    def answered(first: int) -> int:
        asked = [subjects.ask("s", first + n) for n in range(5)]
        failures = [one.exception(10) for one in asked]
        assert {type(failure) for failure in failures} <= {type(None), RegistryBusyError}
        return failures.count(None)

    assert answered(100) == 3
    now[0] += 0.021
    assert answered(200) == 2
    assert answered(300) == 0
    now[0] += 1e6
    assert answered(400) == 5
    assert subjects._rate._left == ids.MAX_AT_ONCE - 5
    assert not subjects.is_down


def test_new_subjects_are_read_at_a_bounded_rate(registry: ScriptedRegistry) -> None:
    now = [1000.0]
    subjects = SubjectIds(RegistryClient(registry.url), refresh_s=50.0, clock=lambda: now[0])
    subjects._reading_rate._left = 3.0
    for n in range(9):
        subjects.ids(f"stranger-{n}")
    subjects.start()
    try:
        eventually(lambda: registry.asked.total() == 3)
        subjects.ids("s")
        time.sleep(0.3)
        assert registry.asked.total() == 3
        now[0] += 0.0501
        eventually(lambda: registry.asked.total() >= 8)
        now[0] += 1.0
        eventually(lambda: subjects.ids("s") == {7, 9} and not subjects._new)
    finally:
        subjects.close()


def test_one_connection_cannot_have_all_questions_that_may_wait(
    registry: ScriptedRegistry, subjects: SubjectIds
) -> None:
    registry.go_on.clear()
    subjects.ids("s")
    greedy, other = ids.Asker("a", 1), ids.Asker("b", 2)
    asked = [subjects.ask("s", n, greedy) for n in range(1000, 1000 + ids.MAX_OWN_QUESTIONS + 3)]
    assert sum(one.done() for one in asked) == 3
    for one in asked[-3:]:
        with pytest.raises(RegistryBusyError, match="of one client"):
            one.result(0)
    assert not subjects.ask("s", 7, other).done()
    registry.go_on.set()
    for one in asked[:-3]:
        assert result(one) == frozenset()
    assert (subjects._own, subjects._serving, subjects._lines, subjects._asked) == ({}, {}, {}, {})
    assert result(subjects.ask("s", 2000, greedy)) == frozenset()


def test_one_sender_leaves_a_thread_to_others(
    registry: ScriptedRegistry, subjects: SubjectIds
) -> None:
    registry.go_on.clear()
    subjects.ids("s")
    of_one = [subjects.ask("s", 1000 + n, ids.Asker("a", n)) for n in range(12)]
    eventually(lambda: subjects._serving["a"] == ids.THREADS - 1)
    of_other = subjects.ask("s", 7, ids.Asker("b", "other"))
    eventually(lambda: subjects._serving["b"] == 1)
    assert subjects._serving["a"] == ids.THREADS - 1
    registry.go_on.set()
    assert result(of_other) == {"s"}
    assert [result(one) for one in of_one] == [frozenset()] * 12


def test_connections_take_turns(
    registry: ScriptedRegistry, subjects: SubjectIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.go_on.clear()
    subjects.ids("s")
    for n in range(ids.THREADS - 1):
        subjects.ask("s", 500 + n, ids.Asker("a", "first"))
    eventually(lambda: subjects._serving["a"] == ids.THREADS - 1)
    for n in range(20):
        subjects.ask("s", 1000 + n, ids.Asker("a", "many"))
    subjects.ask("s", 7, ids.Asker("a", "few"))
    assert [(session, len(line)) for session, line in subjects._lines.items()] == [
        ("many", 20),
        ("few", 1),
    ]
    monkeypatch.setattr(ids, "THREADS", 100)
    taken = [subjects._next() for _ in range(3)]
    assert [one and one.schema_id for one in taken] == [1000, 7, 1001]
    registry.go_on.set()


def test_a_rate_is_that_of_who_asks(subjects: SubjectIds) -> None:
    subjects.ids("s")
    asker = ids.Asker("a", 1, lambda: False)
    with pytest.raises(RegistryBusyError):
        subjects.ask("s", 8, asker).result(0)
    assert result(subjects.ask("s", 7)) == {"s"}


def test_what_one_sender_has_asked_too_early_is_asked_again_for_another(
    registry: ScriptedRegistry, subjects: SubjectIds
) -> None:
    # a client that asks for the id that comes next must not keep it from who has registered it
    early, owner = ids.Asker("early"), ids.Asker("owner")
    subjects.ids("s")
    assert result(subjects.ask("s", 8, early)) == frozenset()
    registry.subjects["s"][3] = 8
    assert subjects.is_absent("s", 8, early)
    assert not subjects.is_absent("s", 8, owner)
    assert result(subjects.ask("s", 8, owner)) == {"s"}


def test_questions_that_wait_fail_when_it_is_closed(
    registry: ScriptedRegistry, subjects: SubjectIds
) -> None:
    registry.go_on.clear()
    asked = [subjects.ask("s", 1000 + n, ids.Asker("a", n)) for n in range(12)]
    subjects.close()
    registry.go_on.set()
    for one in asked:
        try:
            one.result(10)
        except RegistryError:
            continue
    assert all(one.done() for one in asked)
