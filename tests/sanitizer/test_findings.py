"""Findings: their merging, the comments that silence one, JSON, notebooks, and the report's text."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as plain_numpy  # noqa: ICN001  # `np` tracks its arrays here
import pytest

import offload as omp
from offload.sanitizer import Finding, Fix, Side, tracked
from offload.sanitizer import numpy as np
from offload.sanitizer.findings import (
    MOST_FINDINGS,
    FindingStore,
    ItemPart,
    Occurrence,
    Remedy,
    Summary,
    last_line,
    merged,
)
from offload.sanitizer.states import FindingRule
from tests.sanitizer.runs import findings_of

GOLDEN = Path(__file__).parent / "golden"


def occurrence(line=1, *, name="x", box=((0, 4),), address=64, what="write", rule=FindingRule.RACE, file="/p.py"):
    """Return an occurrence between a line and line 100."""
    return Occurrence(
        rule,
        ItemPart(name, box, address),
        Side(file, line, what, "one"),
        Side(file, 100, "read", "two"),
        Remedy("wait", "wait({})", file, 100),
        (),
    )


def settled(store):
    return store.settled(lambda _: True)


def test_one_finding_for_a_rule_and_two_lines():
    """Occurrences at one pair of lines are one finding, whose box holds all their elements."""
    store = FindingStore()
    store.add(occurrence(box=((0, 2),)))
    store.add(occurrence(box=((3, 4),)), 2)
    store.add(occurrence(2))
    store.add(occurrence(rule=FindingRule.STALE_HOST))
    findings, more, silenced = settled(store)
    assert [(one.rule, one.first.line, one.elements, one.count) for one in findings] == [
        ("race", 1, "[0:4]", 3),
        ("stale-host", 1, "[0:4]", 1),
        ("race", 2, "[0:4]", 1),
    ]
    assert (more, silenced) == (0, 0)


def test_several_arrays_of_one_finding():
    """A finding names each array that the two lines share, and its fix has all of them."""
    store = FindingStore()
    store.add(occurrence(name="y", address=1))
    store.add(occurrence(name="x", address=2))
    store.add(occurrence(name="float64[4]", address=1))
    ((finding,), *_) = settled(store)
    assert (finding.item, finding.elements, finding.fix.text) == ("x, y", "[0:4], [0:4]", "wait(x, y)")


def test_the_same_finding_in_any_order():
    """Which of several occurrences comes first in a run does not matter."""
    those = [occurrence(what="read"), occurrence(what="write"), occurrence(what="copy")]
    found = []
    for order in (those, those[::-1]):
        store = FindingStore()
        for one in order:
            store.add(one)
        found.append(settled(store)[0])
    assert found[0] == found[1]
    assert found[0][0].first.what == "copy"


def test_at_most_so_many_findings():
    """Findings beyond the limit are counted, and the report says so."""
    store = FindingStore()
    for line in range(MOST_FINDINGS + 5):
        store.add(occurrence(line))
    findings, more, silenced = settled(store)
    assert (len(findings), more) == (MOST_FINDINGS, 5)
    summary = Summary(findings, more, silenced, 7, ())
    assert "205 findings in 7 accesses" in last_line(summary)
    assert "5 of them are not shown" in last_line(summary)


@pytest.mark.parametrize(
    ("comment", "is_silenced"),
    [
        ("# offload: ignore", True),
        ("# offload: ignore[race]", True),
        ("# offload: ignore[stale-host, race]", True),
        ("#offload:ignore[ race ]", True),
        ("# noqa  # offload: ignore[race]", True),
        ("# offload: ignore[stale-host]", False),
        ("# offload: ignored by nobody[race]", False),
        ("# ignore[race]", False),
    ],
)
@pytest.mark.parametrize("line", [1, 3])
def test_silencing_comments(tmp_path, comment, is_silenced, line):
    """A comment on the line of either side silences its rules, or all of them, and is counted."""
    path = tmp_path / "p.py"
    path.write_text("".join(f"x = {k}  {comment if k == line else ''}\n" for k in range(1, 4)))
    one = occurrence(1, file=str(path))
    store = FindingStore()
    store.add(one._replace(second=Side(str(path), 3, "read", "two")))
    findings, _, silenced = settled(store)
    assert (len(findings), silenced) == ((0, 1) if is_silenced else (1, 0))


def test_a_silenced_program(findings):
    """A comment in a program silences the finding there, and no other."""
    found = findings(
        """
        @omp.target(map=[to("x")])
        def double(x):
            x *= 2
        x = np.ones(8)
        double(x)
        print(x[0])  # offload: ignore[stale-host]
        print(x[1])
        """
    )
    assert [one.elements for one in found] == ["[1:2]"]


def test_findings_are_plain_values():
    """Findings can be compared, hashed and pickled, and go to JSON as the reference says."""
    store = FindingStore()
    store.add(occurrence())
    findings, more, silenced = settled(store)
    (finding,) = findings
    assert pickle.loads(pickle.dumps(finding)) == finding
    assert hash(finding) == hash(pickle.loads(pickle.dumps(finding)))
    written = json.loads(json.dumps(Summary(findings, more, silenced, 3, ("a thing",)).as_json(["p.py", "x"])))
    assert written == {
        "version": 1,
        "program": ["p.py", "x"],
        "accesses": 3,
        "not_seen": ["a thing"],
        "findings": [
            {
                "rule": "race",
                "item": "x",
                "elements": "[0:4]",
                "first": {"file": "/p.py", "line": 1, "what": "write", "name": "one"},
                "second": {"file": "/p.py", "line": 100, "what": "read", "name": "two"},
                "fix": {"kind": "wait", "text": "wait(x)", "file": "/p.py", "line": 100},
                "count": 1,
            }
        ],
        "more": 0,
        "silenced": 0,
    }


def test_findings_of_several_runtimes_are_merged():
    """The report of a process has one finding for each rule and pair of lines, of all runtimes together."""
    summaries = []
    for line in (1, 1, 2):
        store = FindingStore()
        store.add(occurrence(line))
        summaries.append(Summary(*settled(store), 10, (f"line {line}",)))
    together = merged(summaries)
    assert [(one.first.line, one.count) for one in together.findings] == [(1, 2), (2, 1)]
    assert (together.accesses, together.not_seen) == (30, ("line 1", "line 2"))


def test_notebooks():
    """A finding, and the findings of a runtime, show as text and as HTML in which nothing is markup."""
    store = FindingStore()
    store.add(occurrence(name="<b>"))
    findings, *_ = settled(store)
    for shown in (findings, findings[0]):
        bundle = shown._repr_mimebundle_()
        assert "nothing orders two accesses: <b>[0:4]" in bundle["text/plain"]
        assert "&lt;b&gt;" in bundle["text/html"]
        assert "<b>" not in bundle["text/html"]


@pytest.mark.parametrize("rule", ["stale-host", "stale-device", "uninitialised", "race", "leak"])
def test_report_text(rule, capsys, monkeypatch):
    """The report of each rule shows the array, both lines and the fix; the corrected program is clean."""
    monkeypatch.setenv("NO_COLOR", "1")
    folder = GOLDEN / rule
    assert findings_of(folder / "wrong.py")
    found = capsys.readouterr().err.replace(f"{folder}/", "")
    assert found == (folder / "report.txt").read_text()
    assert findings_of(folder / "right.py") == ()


# -- the runtime -------------------------------------------------------------------------------------
def stale():
    """Make a finding."""
    x = np.ones(8)
    omp.target(map=[omp.to("x")])(lambda x: x.fill(2))(x)
    return float(x.sum())


def test_findings_of_a_runtime():
    """A runtime has its findings while it is open and afterwards, and none without the sanitizer."""
    with omp.Runtime("sim:1", sanitize=True) as runtime:
        assert runtime.findings == ()
        stale()
        (finding,) = runtime.findings
        assert isinstance(finding, Finding)
        assert isinstance(finding.first, Side)
        assert isinstance(finding.fix, Fix)
    assert runtime.findings == (finding,)
    with omp.Runtime("sim:1") as plain:
        stale()
    assert plain.findings == ()


@pytest.mark.parametrize("env", [{"OFFLOAD_SANITIZE": "1"}, {"OFFLOAD_SANITIZE": "true"}])
def test_the_variable(env):
    """``OFFLOAD_SANITIZE`` sanitizes a runtime that says nothing itself."""
    with omp.Runtime("sim:1", env=env) as runtime:
        stale()
    assert len(runtime.findings) == 1
    with omp.Runtime("sim:1", env=env, sanitize=False) as runtime:
        stale()
    assert runtime.findings == ()


@pytest.mark.parametrize("how", [{"sanitize": "error"}, {"env": {"OFFLOAD_SANITIZE": "error"}}])
def test_error(how, capsys):
    """The end of the runtime raises the findings, with the whole report."""
    with pytest.raises(omp.SanitizerError, match="stale-host") as caught, omp.Runtime("sim:1", **how):
        stale()
    (finding,) = caught.value.findings
    assert finding.rule == "stale-host"
    assert isinstance(caught.value, omp.UsageError)
    assert pickle.loads(pickle.dumps(caught.value)).findings == caught.value.findings
    assert capsys.readouterr().err == ""


def test_error_in_flight(capsys):
    """An exception of the program is not replaced, and the findings are printed."""
    with pytest.raises(KeyError), omp.Runtime("sim:1", sanitize="error") as runtime:
        stale()
        raise KeyError
    assert len(runtime.findings) == 1
    assert "stale-host" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["maybe", 1, 0, "", "true", [], object()])
def test_wrong_values(value):
    """Other values are refused, and nothing stays sanitized."""
    with pytest.raises(omp.ClauseError, match="sanitize"):
        omp.Runtime("sim:1", sanitize=value)
    with omp.Runtime("sim:1") as runtime:
        stale()
    assert runtime.findings == ()


def test_wrong_variable():
    """A value of the variable that means nothing is refused."""
    with pytest.raises(omp.ClauseError, match="OFFLOAD_SANITIZE"):
        omp.Runtime("sim:1", env={"OFFLOAD_SANITIZE": "maybe"})


@pytest.mark.parametrize("devices", ["cuda", "cuda:0", "sim,cuda:0", "dask"])
def test_other_devices(devices):
    """Devices whose arrays cannot be observed are refused with the advice to use simulated ones."""
    with pytest.raises(omp.UnsupportedError, match="sim"):
        omp.Runtime(devices, sanitize=True)


def test_without_a_device(recwarn):
    """A runtime without a device is sanitized as well: host tasks may race."""
    with omp.Runtime("none", sanitize=True) as runtime:
        x = np.ones(8)
        add = omp.task(lambda x: x.__iadd__(1))
        add(x)
        add(x)
    assert [one.rule for one in runtime.findings] == ["race"]


def test_not_seen(capsys):
    """The report lists the arrays that cannot be observed, and storage that was given away."""
    plain, seen = plain_numpy.ones(8), tracked(plain_numpy.ones(8))
    with omp.Runtime("sim:1", sanitize=True):
        omp.target(lambda plain, seen: None)(plain, seen)
        d = omp.target_alloc(8, "f8")
        d.unwrap()[...] = 3
        omp.target_free(d)
    line = capsys.readouterr().err
    assert line.startswith("offload sanitizer: 0 findings in ")
    assert "the host array plain, mapped at" in line
    assert "seen, mapped" not in line
    assert "d was given away at" in line


def test_storage_that_was_given_away(clean):
    """Accesses of storage that the program has unwrapped or associated are not observed, and make no finding."""
    clean(
        """
        @omp.target
        def outside(x):
            x.unwrap()[...] = 3
        @omp.target
        def double(x):
            x *= 2
        x, y = np.ones(8), np.ones(8)
        with omp.target_data(map=[alloc(x)]):
            outside(x)
            double(x)
            print(x)
        d = omp.target_alloc(8, "f8")
        omp.target_associate_ptr(y, d)
        double(y)
        print(y)
        omp.target_disassociate_ptr(y)
        omp.target_free(d)
        """
    )


def test_two_runtimes(findings):
    """Two sanitized runtimes each have the findings of their own devices."""
    with omp.Runtime("sim:1", sanitize=True) as outer:
        with omp.Runtime("sim:1", sanitize=True) as inner:
            stale()
        np.ones(3).sum()
    assert len(inner.findings) == 1
    assert outer.findings == ()
