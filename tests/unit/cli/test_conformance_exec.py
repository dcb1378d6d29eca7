"""``batchval conformance --exec``: scores, and runners that die, are silent or write nonsense."""

from __future__ import annotations

import base64
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchval.cli import runner
from tests.unit.cli.conftest import COMMAND, ROOT

Run = Callable[..., tuple[int, str, str]]

#: a runner: accepts each case, unless the first argument has something else to do for an id
RUNNER = """
import json, os, sys, time
acts, late = json.loads(sys.argv[1]), []
for line in sys.stdin:
    case = json.loads(line)
    assert "expect" not in case and "note" not in case
    act = acts.get(case["id"], {})
    if "exit" in act:
        print("out of memory", file=sys.stderr)
        os._exit(act["exit"])
    if "signal" in act:
        os.kill(os.getpid(), act["signal"])
    if "sleep" in act:
        time.sleep(act["sleep"])
    verdict = json.dumps({"id": case["id"], "accept": True} | act)
    late.append(act.get("write", "") * act.get("times", 1) or verdict)
    if len(late) == acts.get("at once", 1):
        print(*reversed(late), sep="\\n", flush=True)
        late = []
print(*late, *acts.get("last", []), sep="\\n", end="\\n" if late or "last" in acts else "")
"""


def case(name: str, *, accept: bool = True, rule: str | None = "14", **more: Any) -> dict[str, Any]:
    expect = {"accept": accept} | ({} if accept else {"error": "CORRUPT_MESSAGE"}) | more
    return {
        "schema": 1,
        "id": name,
        "profile": "broker",
        "rule": rule,
        "batch": base64.b64encode(b"x" * 60).decode(),
        "expect": expect,
        "note": "",
    }


CASES = [case(f"c{number}") for number in range(40)]


def _id(one: dict[str, Any]) -> str:
    return str(one["id"])


@pytest.fixture
def score(run: Run, tmp_path: Path) -> Callable[..., tuple[int, str, str]]:
    """Run the command over cases with a runner that does what ``acts`` says."""
    (tmp_path / "runner.py").write_text(RUNNER)

    def call(
        cases: list[dict[str, Any]], acts: dict[str, Any], *words: object
    ) -> tuple[int, str, str]:
        path = tmp_path / "cases.jsonl"
        path.write_text("".join(f"{json.dumps(one)}\n" for one in cases))
        command = shlex.join(
            [sys.executable, "-S", "-E", str(tmp_path / "runner.py"), json.dumps(acts)]
        )
        return run("conformance", "--exec", command, *words, path)

    return call


def last(out: str) -> str:
    return out.splitlines()[-1].removeprefix("conformance: ")


def test_a_score_by_rule(score: Run) -> None:
    cases = [
        case("a", rule=None),
        case("b", accept=False),
        case("c", accept=False),
        case("d", accept=False),
        case("e", rule="S3"),
    ]
    acts = {
        "b": {"accept": False, "error": "CORRUPT_MESSAGE"},
        "c": {"accept": False, "error": "INVALID_RECORD"},
        "e": {"accept": None, "skip": "no API"},
    }
    code, out, err = score(cases, acts)
    assert (code, err) == (1, "")
    assert [line.split() for line in out.splitlines() if line[:2] in ("14", "S3", "no")] == [
        ["none", "1", "1", "0", "0", "0"],
        ["14", "crc-mismatch", "3", "1", "2", "0", "0"],
        ["S3", "offset-deltas-not-sequential", "1", "0", "0", "0", "1"],
    ]
    assert out.splitlines()[:2] == [
        "c: rule 14: expected refuse, CORRUPT_MESSAGE; wrong: refuse, INVALID_RECORD",
        "d: rule 14: expected refuse, CORRUPT_MESSAGE; wrong: accept",
    ]
    assert last(out) == "2 of 5 right, 2 wrong, 0 failed, 1 skipped"


def test_records_are_compared_where_both_count_them(score: Run) -> None:
    cases = [case(name, records=2) | {"profile": "reader"} for name in "abc"]
    code, out, _ = score(cases, {"a": {"records": 2.0}, "b": {"records": 3}}, "--profile", "reader")
    assert (code, last(out)) == (1, "2 of 3 right, 1 wrong, 0 failed, 0 skipped")
    assert out.startswith("b: rule 14: expected accept, 2 records; wrong: accept, 3 records\n")


@pytest.mark.parametrize("at_once", [1, 4, 16])
def test_verdicts_may_come_in_another_order(score: Run, at_once: int) -> None:
    code, out, _ = score(CASES[:32], {"at once": at_once})
    assert (code, last(out)) == (0, "32 of 32 right, 0 wrong, 0 failed, 0 skipped")


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "exit": ({"exit": 7}, "ended with exit status 7"),
    "crash": ({"signal": 11}, "ended by SIGSEGV"),
    "signal without a name": ({"signal": 35}, "ended by signal 35"),
    "text": ({"write": "WARN no logger"}, "a line that is not JSON: 'WARN no logger'"),
    "list": ({"write": "[1]"}, "a line without an id: '[1]'"),
    "no id": ({"write": '{"accept": true}'}, "a line without an id: "),
    "wrong id": ({"id": "zz"}, "a verdict for the id 'zz', which was not asked"),
    "word": ({"accept": "yes"}, "not a verdict, accept must be true or false: '{"),
    "no verdict": ({"accept": None}, "not a verdict, accept and skip are missing: '{"),
    "both": ({"skip": "x"}, "not a verdict, it has accept and skip: '{"),
    "skip": ({"accept": None, "skip": True}, "not a verdict, skip must be a string: '{"),
    "error": ({"error": 2}, "not a verdict, error must be a string: '{"),
    "records": ({"records": "2"}, "not a verdict, records must be an integer: '{"),
    "deep": ({"write": "[" * 100_000}, "a line that is nested too deep: '[["),
    "empty": ({"write": " "}, "an empty line: ' '"),
    "long": ({"write": "x", "times": 1_200_000}, "a line "),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_counts_for_its_case_alone(score: Run, what: str) -> None:
    act, text = FAULTS[what]
    code, out, err = score(CASES, {"c5": act})
    assert (code, last(out)) == (1, "39 of 40 right, 0 wrong, 1 failed, 0 skipped")
    assert out.startswith(f"c5: rule 14: expected accept; failed: {text}")
    assert ("its standard error ends with: out of memory" in err) == (what == "exit")


def test_a_silent_runner_is_stopped(score: Run) -> None:
    code, out, _ = score(CASES[:1], {"c0": {"sleep": 60}}, "--timeout", "0.3")
    assert code == 1
    assert out.startswith("c0: rule 14: expected accept; failed: no verdict within 0.3 s")


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ('printf "{"; exec sleep 9', "no verdict within 0.3 s: the line '{' has no end"),
        ('read -r line; printf "{"; exit 0', "ended with exit status 0: the line '{' has no end"),
        ("printf '\\377\\n'; cat", "a line that is not UTF-8: '\\\\xff'"),
        (
            "sleep 9 & read -r line",
            "no verdict within 0.3 s: ended with exit status 0, and another process keeps its"
            " standard output open",
        ),
    ],
)
def test_half_a_line_and_a_process_that_is_left(
    run: Run, tmp_path: Path, script: str, text: str
) -> None:
    (path := tmp_path / "cases.jsonl").write_text(json.dumps(CASES[0]))
    command = shlex.join(["sh", "-c", script])
    code, out, _ = run("conformance", "--exec", command, "--timeout", "0.3", path)
    assert (code, out.splitlines()[0]) == (1, f"c0: rule 14: expected accept; failed: {text}")


def test_an_interrupted_run_prints_its_score(score: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    add = runner.Score.add

    def interrupt(self: runner.Score, outcome: runner.Outcome) -> None:
        add(self, outcome)
        if self.total.cases == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(runner.Score, "add", interrupt)
    code, out, err = score(CASES, {})
    assert (code, err.strip()) == (130, "batchval conformance: interrupted")
    assert last(out) == "3 right of 3 asked (40 cases), 0 wrong, 0 failed, 0 skipped"


def accepted(name: str) -> str:
    return json.dumps({"id": name, "accept": True})


WROTE = "batchval conformance: the runner wrote "


@pytest.mark.parametrize("cases", [CASES[:1], CASES], ids=["alone", "under way"])
def test_a_second_verdict_on_a_case_is_a_fault(score: Run, cases: list[dict[str, Any]]) -> None:
    twice = f"{accepted('c0')}\n{accepted('c0')}"
    code, out, err = score(cases, {"c0": {"write": twice}})
    right = f"{len(cases)} of {len(cases)} right, 0 wrong, 0 failed, 0 skipped"
    assert (code, last(out), err) == (1, right, f"{WROTE}a second verdict for the id 'c0'\n")


def test_a_runner_that_answers_twice_fails_no_case(score: Run) -> None:
    acts = {name: {"write": f"{accepted(name)}\n{accepted(name)}"} for name in map(_id, CASES)}
    code, out, err = score(CASES, acts)
    assert (code, last(out)) == (1, "40 of 40 right, 0 wrong, 0 failed, 0 skipped")
    assert len(err.splitlines()) == 21
    assert err.endswith("batchval conformance: … and 20 more\n")


def test_a_runner_that_repeats_one_verdict_is_stopped(
    score: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "MAX_FAILURES", 1)
    flood = {"write": "\n".join([accepted("c0")] * 10)}
    code, out, err = score(CASES, {_id(one): flood for one in CASES}, "--timeout", "0.3")
    assert (code, last(out)) == (3, "1 right of 2 asked (40 cases), 0 wrong, 1 failed, 0 skipped")
    assert err.splitlines() == [
        "batchval conformance: the runner failed 1 times in a row: no verdict within 0.3 s (a"
        " runner must flush each line)",
        f"{WROTE}a second verdict for the id 'c0'",
    ]


FOREIGN = {
    "foreign": (accepted("zz"), "a verdict for the id 'zz', which was not asked"),
    "no id": ("{}", "a line without an id: '{}'"),
    "text": ("INFO c5", "a line that is not JSON: 'INFO c5'"),
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("after", ["c5", "last"])
def test_a_line_after_a_verdict_is_a_fault_of_no_case(score: Run, what: str, after: str) -> None:
    line, text = FOREIGN[what]
    acts = {"c5": {"write": f"{accepted('c5')}\n{line}"}} if after == "c5" else {"last": [line]}
    code, out, err = score(CASES, acts)
    assert (code, last(out)) == (1, "40 of 40 right, 0 wrong, 0 failed, 0 skipped")
    assert err == f"{WROTE}{text}\n"


def test_a_runner_that_never_answers(score: Run, tmp_path: Path) -> None:
    page = tmp_path / "score.html"
    page.write_text("old")
    code, out, err = score(CASES, {_id(one): {"exit": 1} for one in CASES}, "--page", page)
    sum_of_all = "0 right of 5 asked (40 cases), 0 wrong, 5 failed, 0 skipped"
    assert (code, last(out)) == (3, sum_of_all)
    reason = "the runner failed 5 times in a row: ended with exit status 1"
    assert err.startswith(f"batchval conformance: {reason}\n")
    text = page.read_text("utf-8")
    assert f"The run ended early: {reason}" in text
    assert sum_of_all in text


def test_an_error_that_is_not_unicode(score: Run, tmp_path: Path) -> None:
    page = tmp_path / "score.html"
    acts = {"c0": {"accept": False, "error": "\ud800"}, "c1": {"accept": None, "skip": "\udfff"}}
    code, out, _ = score(CASES[:2], acts, "--page", page)
    assert (code, out.splitlines()[0]) == (
        1,
        "c0: rule 14: expected accept; wrong: refuse, \\ud800",
    )
    assert "refuse, \\ud800" in page.read_text("utf-8")


def test_the_reader_of_the_output_may_leave(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(CASES[0]))
    words = ["conformance", "--json", "--exec", "true", str(path)]
    with subprocess.Popen(
        [*COMMAND, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ["--exec", "/no/such/runner"],
            "cannot start '/no/such/runner': No such file or directory",
        ),
        (["--exec", "true", "--profile", "reader"], "no case of profile reader in "),
        (["--exec", "'"], "invalid --exec"),
        (["--exec", ""], "--exec is empty"),
        (
            ["--exec", "true", "--kafka-version", "4.4"],
            "--kafka-version cannot be combined with --exec: each case names its version",
        ),
        (["--profile", "reader"], "--profile needs --exec CMD"),
        (["--page", "a.html"], "--page needs --exec CMD"),
        (["--timeout", "3"], "--timeout needs --exec CMD"),
        (["--exec", "true", "--timeout", "nan"], "'--timeout': nan is not a number."),
    ],
    ids=" ".join,
)
def test_what_cannot_be_run(run: Run, tmp_path: Path, words: list[str], text: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(CASES[0]))
    code, _, err = run("conformance", *words, path)
    assert code == (3 if text.startswith(("cannot", "no case")) else 2)
    assert text in err


def test_paths_are_needed_without_a_runner(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("conformance")
    assert code == 2
    assert "missing PATH" in err
    monkeypatch.setattr(runner, "find_spec", lambda name: None)
    code, _, err = run("conformance", "--exec", "true")
    assert code == 3
    assert "pip install batchval-fixtures" in err


NO_CASES: dict[str, object] = {
    "list": [1],
    "schema": CASES[0] | {"schema": 2},
    "expect": CASES[0] | {"expect": {}},
    "id": CASES[0] | {"id": 5},
    "rule": CASES[0] | {"rule": 5},
    "base64": CASES[0] | {"batch": "?"},
    "half a pair": CASES[0] | {"id": "\ud800"},
    "error": CASES[0] | {"expect": {"accept": False, "error": "\ud800"}},
    "of batchval itself": {"id": "a", "batch_hex": "00", "expect": {}},
}


@pytest.mark.parametrize("what", NO_CASES)
def test_a_line_that_is_not_a_case(run: Run, tmp_path: Path, what: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(f"{json.dumps(CASES[0])}\n{json.dumps(NO_CASES[what])}\n")
    code, _, err = run("conformance", "--exec", "true", path)
    assert code == 3
    assert f"{path}:2: not a case: " in err


def test_an_id_is_there_once(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(f"{json.dumps(CASES[0])}\n" * 2)
    code, _, err = run("conformance", "--exec", "true", path)
    assert (code, "two cases have the id 'c0'" in err) == (3, True)


def test_the_page(score: Run, tmp_path: Path) -> None:
    page = tmp_path / "score.html"
    cases = [*CASES[:3], case("<b>")]
    score(cases, {"<b>": {"accept": False, "error": "<script>"}}, "--page", page)
    text = page.read_text("utf-8")
    assert "3 of 4 right, 1 wrong" in text
    assert "&lt;b&gt;" in text
    assert "refuse, &lt;script&gt;" in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
