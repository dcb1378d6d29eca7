"""Set up all tests: make a skip an error where CI allows none, and share them among processes.

Signals, locale, umask and the environment are made the same, whatever the caller has
(tests/support/caller.py).

A skip is an error in CI (``CI=true``) and where ``BATCHVAL_NO_SKIPS=1``; elsewhere pytest's ``-ra``
lists skips with reasons. Where pytest-xdist runs the tests in several processes (``-n``), each
takes whole files, the longest first.

``make test`` passes ``--brief``: the tests of tests/unit that start no JVM and are not ``long``,
and one of each folder of tests/system; what it left out is printed. ``make test-ci`` and ``make
test-full`` run tests that have the marker ``alone`` in a second stage, in one process: they measure
time or memory.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from batchval import compression
from tests.support.caller import settle

settle()  # before any process is started

# a loaded machine may take a second for what takes a millisecond
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

NO_SKIPS = os.environ.get("BATCHVAL_NO_SKIPS", "0") == "1" or os.environ.get("CI", "").lower() in {
    "1",
    "true",
}

#: Folders whose files share what is dear to start (a broker): one process runs all of them.
TOGETHER = tuple(
    f"tests/system/{name}/" for name in ("chain", "auth", "perf", "fetch", "producer", "spark")
)
#: These take long, so they begin early: no process is to be left alone with one of them at the end.
LONG = (
    "tests/system/proxy/test_real_cluster.py",
    "tests/system/chain/",
    "tests/system/auth/",
    "tests/system/spark/",
    "tests/system/fetch/",
    "tests/system/perf/",
    "tests/evidence/conformance/",
    "tests/system/broker_agent/",
    "tests/system/",
    "tests/evidence/",
    "tests/repo/",
    "tests/unit/proxy",
)


@pytest.fixture(params=compression.PROVIDERS)
def provider(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each codec provider in turn; returns its name."""
    before = compression.provider()
    compression.use(request.param)
    yield request.param
    compression.use(before)


@pytest.fixture(scope="session")
def kafka() -> Any:
    """Build the oracle and return its module; skip where it cannot be built here.

    A build that fails is an error, not a skip.
    """
    from tests.evidence.conformance import oracle

    try:
        oracle.java(answers=True)
        oracle.jar()
    except oracle.OracleUnavailable as error:
        pytest.skip(str(error))
    return oracle


class Held:
    """Frees the gates of earlier tests: a block that one holds is in ``bytes_held`` of the next.

    A gate is garbage once its threads have ended, a moment after its test, or its module where it
    is a fixture's. A collection takes 50 ms. Within a module, what is still held after a second, of
    a fixture or a leak, is waited for no more. What is left of an earlier module fails the test
    that finds it: else a test that asks for 0 bytes would fail, which is not at fault.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.module = ""

    def free(self, module: str, allocated: Callable[[], int]) -> None:
        """Collect until the blocks have no more bytes than at the last call; 0 in a new module."""
        is_new, before = module != self.module, self.module
        until = time.monotonic() + (30.0 if is_new else 1.0)
        while allocated() > (0 if is_new else self.bytes):
            gc.collect()
            if not allocated() or time.monotonic() > until:
                break
            time.sleep(0.02)
        self.bytes = allocated()
        self.module = module
        if is_new and self.bytes:
            pytest.fail(f"blocks of {self.bytes} bytes are held, left by {before} or one before it")


HELD = Held()


def pytest_runtest_setup(item: pytest.Item) -> None:
    blocks = sys.modules.get("batchval.protocol.frame_memory")
    if blocks is not None:
        HELD.free(str(item.path), blocks.allocated)


def pytest_collection(session: pytest.Session) -> None:
    """Import this process's share of the test modules before it collects all of them.

    pytest compiles a test module, with its assertions rewritten, where it finds no ``.pyc``. Every
    process of ``-n`` collects all modules in the same order, so in a fresh clone each of them would
    compile all. In this way each compiles its share, and reads what the other processes compiled.
    """
    config = session.config
    if not hasattr(config, "workerinput") or config.args_source is not config.ArgsSource.TESTPATHS:
        return
    kinds = "unit" if config.option.brief else "*"
    worker = int(config.workerinput["workerid"].removeprefix("gw"))
    tests = config.rootpath / "tests"
    files = sorted(
        tests.glob(f"{kinds}/*/test_*.py"), key=lambda file: (-file.stat().st_size, file)
    )
    for file in files[worker :: config.workerinput["workercount"]]:
        # what fails here fails again when the module is collected, and is reported there
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(
                f"tests.{file.parent.parent.name}.{file.parent.name}.{file.stem}"
            )


#: Markers of tests that ``--brief`` leaves out, wherever they are.
NOT_BRIEF = ("slow", "long", "alone")
#: The file of each folder of tests/system of which ``--brief`` runs the first quick test.
ONE_OF_EACH = {
    "at_rest": "test_damaged_fixtures.py",
    "auth": "test_perf_tools.py",
    "broker_agent": "test_log_validator.py",
    "chain": "test_chain.py",
    "demo": "test_gate_demo.py",
    "deploy": "test_systemd.py",
    "fetch": "test_consumer.py",
    "interop": "test_kafka_broker.py",
    "kit": "test_cases.py",
    "network": "test_brokers.py",
    "perf": "test_consume_broker.py",
    "producer": "test_broker.py",
    "proxy": "test_real_cluster.py",
    "spark": "test_engine.py",
}
#: What was left out, and how many of it.
LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--brief",
        action="store_true",
        help="Run the quick tests of tests/unit, and one of each folder of tests/system; print what"
        " was left out.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file out that ``--brief`` needs not import."""
    if not config.option.brief or not collection_path.name.startswith("test_"):
        return None
    kind, folder = collection_path.parts[-3:-1]
    if kind == "unit" or ONE_OF_EACH.get(folder) == collection_path.name:
        return None
    config.stash[LEFT_OUT][f"files in tests/{kind}"] += 1
    return True


def why_left_out(item: pytest.Item, seen: set[str]) -> str | None:
    """Return why ``--brief`` leaves a test out, or None; ``seen``: files that have one already."""
    marks = {mark.name for mark in item.iter_markers()}
    file = item.nodeid.partition("::")[0]
    for mark in NOT_BRIEF:
        if mark in marks:
            return f"tests marked {mark}"
    if not file.startswith("tests/system/"):
        return "tests marked jvm in tests/unit" if "jvm" in marks else None
    if file in seen:
        return "tests of the other files in tests/system"
    seen.add(file)
    return None


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of ``--brief``; note which kinds were left out."""
    seen: set[str] = set()
    reasons = [why_left_out(item, seen) for item in items]
    config.stash[LEFT_OUT].update(why for why in reasons if why is not None)
    config.hook.pytest_deselected(items=[i for i, why in zip(items, reasons, strict=True) if why])
    items[:] = [i for i, why in zip(items, reasons, strict=True) if why is None]
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = dict(config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process of ``-n`` left out: each of them leaves out the same."""
    if found := getattr(node, "workeroutput", {}).get("left_out"):
        node.config.stash[LEFT_OUT] = Counter(found)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if found := config.stash[LEFT_OUT]:
        terminalreporter.section("left out")
        for why, count in found.most_common():
            terminalreporter.line(f"{count:6d} {why}")
        terminalreporter.line(
            "make test-full runs all of them, make test-ci those that are not slow"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.brief:
        leave_out(config, items)
    if hasattr(config, "workerinput"):
        rank = {start: n for n, start in enumerate(LONG)}
        items.sort(
            key=lambda item: next(
                (rank[start] for start in LONG if item.nodeid.startswith(start)), len(LONG)
            )
        )


def pytest_collection_finish() -> None:
    """Ten thousand tests are kept to the end: the garbage collector need not look through them
    again and again.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.option.dist != "load":  # what -n alone means; --dist says otherwise
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next(
                (folder for folder in TOGETHER if nodeid.startswith(folder)),
                nodeid.partition("::")[0],
            )

    config.option.loadscopereorder = False  # by number of tests; they are in order already
    return Files(config, log)


def _refuse(report: Any) -> None:
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped here: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    _refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _refuse(report)
    return report
