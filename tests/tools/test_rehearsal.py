"""tools/rehearsal: the parts that need no tree: index, steps, versions, settings, claims."""

from __future__ import annotations

import hashlib
import io
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from batchval.core import claims
from tests.support import proxy as batches
from tools.rehearsal import __main__ as command
from tools.rehearsal import index, plan, steps, wheels
from tools.rehearsal.running_gate import metric_in
from tools.rehearsal.settings import GATE, lost_settings
from tools.rehearsal.steps import Outcome, Step, StepFailed

# ---- the index -----------------------------------------------------------------------------------


def test_pages_link_each_wheel_with_its_digest() -> None:
    files = ("python_snappy-0.7.3-py3-none-any.whl", "python_snappy-0.7.2-py3-none-any.whl")
    made = index.pages({files[0]: "aa", files[1]: "bb"})
    assert set(made) == {"/simple/", "/simple/python-snappy/"}
    assert '<a href="/simple/python-snappy/">python-snappy</a>' in made["/simple/"]
    assert made["/simple/python-snappy/"].count("<a ") == 2
    assert f'href="/wheels/{files[0]}#sha256=aa"' in made["/simple/python-snappy/"]


@pytest.mark.parametrize("name", ["Python.Snappy", "python__snappy", "python-_.snappy"])
def test_names_are_normalised(name: str) -> None:
    assert index.normalised(name) == "python-snappy"


def test_the_index_serves_its_wheels_and_nothing_else(tmp_path: Path) -> None:
    wheel = tmp_path / "one-1.0-py3-none-any.whl"
    wheel.write_bytes(b"content")
    (tmp_path / "other").write_bytes(b"secret")
    with index.LocalIndex([wheel]) as served:
        digest = hashlib.sha256(b"content").hexdigest()
        with urllib.request.urlopen(f"{served.url}/one/") as answer:
            assert f"sha256={digest}" in answer.read().decode()
        with urllib.request.urlopen(f"{served.root}wheels/{wheel.name}") as answer:
            assert answer.read() == b"content"
        for path in ("wheels/other", wheel.name, "simple/two/", f"wheels/../{wheel.name}"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(served.root + path)
        assert served.requests[:2] == ["/simple/one/", f"/wheels/{wheel.name}"]


def test_two_wheels_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    pair = [tmp_path / "one-1.0-py3-none-any.whl", tmp_path / "a" / "one-1.0-py3-none-any.whl"]
    for wheel in pair:
        wheel.touch()
    with pytest.raises(ValueError, match=r"two wheels have the name one-1\.0"):
        index.LocalIndex(pair)


# ---- steps ---------------------------------------------------------------------------------------


def failing(error: Exception) -> Callable[[], str]:
    def action() -> str:
        raise error

    return action


def test_steps_that_need_a_failed_one_are_skipped() -> None:
    plan_of_four = [
        Step("a", lambda: "done"),
        Step("b", failing(StepFailed("1 record, expected 2")), ("a",)),
        Step("c", lambda: "never", ("a", "b")),
        Step("d", failing(KeyError("x")), ("a",)),
    ]
    begun: list[str] = []
    times = iter(range(100))
    shown: list[Outcome] = []
    outcomes = steps.carry_out(
        plan_of_four, begin=begun.append, show=shown.append, clock=lambda: next(times)
    )
    assert shown == outcomes
    assert begun == ["a", "b", "d"]
    assert [(one.status, one.seconds) for one in outcomes] == [
        ("OK", 1),
        ("FAILED", 1),
        ("SKIPPED", 0),
        ("FAILED", 1),
    ]
    assert str(outcomes[0]).split() == ["OK", "1.0", "s", "a", "done"]
    assert outcomes[1].detail == "1 record, expected 2"
    assert outcomes[2].detail == "needs b"
    assert outcomes[3].detail.startswith("KeyError: 'x' (action, line ")
    assert steps.exit_code(outcomes) == 1
    assert steps.exit_code(outcomes[:1]) == 0


def test_a_need_is_an_earlier_step() -> None:
    with pytest.raises(ValueError, match="step a needs b: not an earlier step"):
        steps.carry_out([Step("a", str, ("b",)), Step("b", str)])


def test_an_interrupt_ends_the_run() -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        steps.carry_out([Step("a", interrupted), Step("b", str)])


def test_the_steps_of_the_rehearsal_are_in_an_order_that_can_be_carried_out() -> None:
    names: list[str] = []
    for step in plan.Rehearsal(None, None, keep=False).steps():
        assert set(step.needs) <= set(names)
        names.append(step.name)
    assert len(names) == len(set(names)) == 18


# ---- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("previous", "new", "lower"),
    [
        ("0.1.0", "0.1.0", "0.1.0.dev0"),
        ("0.1.0", "0.2.0", "0.1.0"),
        ("0.9.0", "0.10.0", "0.9.0"),
        ("0.3.0", "0.2.0", "0.2.0.dev0"),
        ("0.2.0", "0.2.0rc1", "0.2.0.dev0"),
    ],
)
def test_the_previous_version_is_lower(previous: str, new: str, lower: str) -> None:
    assert wheels.lower_version(previous, new) == lower


def test_no_version_is_lower_than_the_first_development_version() -> None:
    with pytest.raises(ValueError, match=r"0\.1\.0\.dev0 must be higher than 0\.1\.0\.dev0"):
        wheels.lower_version("0.1.0", "0.1.0.dev0")


@pytest.mark.parametrize("line", ['version = "0.1.0"', '__version__ = "0.1.0"'])
def test_a_version_is_patched_where_it_is_declared(line: str) -> None:
    text = (
        f'[project]\nname = "batchval"\n{line}\ntarget-version = "py311"\npython_version = "3.11"\n'
    )
    assert wheels.version_in(text) == "0.1.0"
    assert wheels.patched_version(text, "0.1.0.dev0") == text.replace('"0.1.0"', '"0.1.0.dev0"')


def test_a_file_without_a_version_stays_as_it_is() -> None:
    text = 'dynamic = ["version"]\n[tool.setuptools.dynamic]\nversion = { attr = "batchval.__version__" }\n'
    assert wheels.version_in(text) is None
    assert wheels.patched_version(text, "1.0") == text


def test_this_tree_declares_its_version_in_one_of_the_files() -> None:
    texts = [(wheels.ROOT / name).read_text("utf-8") for name in wheels.VERSION_FILES]
    assert any(wheels.version_in(text) for text in texts)


# ---- settings, metrics, claims -------------------------------------------------------------------


def test_settings_that_are_lost() -> None:
    old = {
        "mode": "enforce",
        "limits": {"threads": 4, "idle": 1},
        "listeners": [{"name": "edge", "tls": None}],
    }
    assert lost_settings(old, old | {"more": 1}) == []
    new = {"mode": "observe", "limits": {"threads": 4}, "listeners": [{"name": "edge", "tls": {}}]}
    assert lost_settings(old, new) == [
        "mode was 'enforce', is 'observe'",
        "limits.idle is gone",
        "listeners[0].tls was None, is {}",
    ]
    assert lost_settings([1], [1, 2], "listeners") == ["listeners was [1], is [1, 2]"]


def test_the_settings_are_sound(tmp_path: Path) -> None:
    from batchval.proxy.settings import loading

    file = tmp_path / "gate.yaml"
    file.write_text(GATE.replace("BROKER", "127.0.0.1:9092"), "utf-8")
    settings = loading.load(file, {})
    shown = yaml.safe_load(loading.shown(settings))
    assert shown["claims_in"] == "trust"
    assert lost_settings(yaml.safe_load(GATE)["limits"], shown["limits"]) == []


def test_a_metric_is_the_sum_over_its_labels() -> None:
    text = '# HELP a_total Of a.\na_total{rule="1"} 2.0\na_total{rule="2"} 3.0\n# HELP b_total Of b.\nab_total 7.0\n'
    assert metric_in(text, "a_total") == 5
    assert metric_in(text, "b_total") == 0
    with pytest.raises(StepFailed, match="lack c_total"):
        metric_in(text, "c_total")


def test_tags_are_those_of_the_core() -> None:
    plain = [batches.batch(b"one" * size, b"two" * size, codec=batches.ZSTD) for size in (50, 60)]
    claimed = io.BytesIO()
    wanted = []
    for batch in plain:
        true = claims.compute(batch)
        assert true is not None
        claimed.write(claims.attach(batch, true))
        wanted.append(claims.to_tag(true[:3], int.from_bytes(batch[17:21], "big")))
    assert list(plan.tags_of(claimed.getvalue(), plain)) == wanted
    with pytest.raises(StepFailed, match="has magic 2, expected 3"):
        list(plan.tags_of(b"".join(plain), plain))


def test_the_summary_is_the_last_line() -> None:
    assert (
        plan.summary_in('{"type": "finding"}\n{"type": "summary", "findings": 1}\n')["findings"]
        == 1
    )
    with pytest.raises(StepFailed, match="of type 'finding'"):
        plan.summary_in('{"type": "finding"}\n')


# ---- the command ---------------------------------------------------------------------------------


def test_without_root_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert command.main([]) == 2
    assert capsys.readouterr().err == (
        "rehearsal: root on Linux is needed: debootstrap, chroot and mount namespaces\n"
    )


def test_a_wheel_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(wheels.WheelError, match="no such file"):
        wheels.new_wheel(tmp_path / "batchval-1.0-py3-none-any.whl")
