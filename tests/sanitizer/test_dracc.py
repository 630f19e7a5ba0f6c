"""The truth table: programs of DataRaceOnAccelerator (DRACC), of each the verdict, both lines and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.profiles import few
from tests.sanitizer.runs import findings_of, marked

PROGRAMS = Path(__file__).parent / "dracc"


class Verdict(NamedTuple):
    """The finding that a program must have, and the change that corrects it."""

    rule: str
    item: str
    elements: str
    kind: str
    text: str
    old: str
    new: str


VERDICTS = {
    "omp_022_missing_data": Verdict(
        "uninitialised", "b", "[0:512, 0:512]", "map", "map(to: b)", 'alloc("b")', 'to("b")'
    ),
    "omp_024_missing_enter_data": Verdict(
        "uninitialised",
        *("b", "[0:512, 0:512]", "update", "target_update(to=[b])"),
        "    kernel(a, b, c)",
        "    omp.target_update(to=[b])\n    kernel(a, b, c)",
    ),
    "omp_027_partially_missing_exit_data": Verdict(
        "stale-host", "c", "[256:512]", "map", "map(from: c)", "from_(c[: C // 2])", "from_(c)"
    ),
    "omp_032_outdated_data": Verdict(
        "stale-host", "c", "[0:512]", "map", "map(tofrom: c)", 'to("c")', 'omp.tofrom("c")'
    ),
    "omp_035_saxpy_without_task_barrier": Verdict(
        "race", "x", "[0:4096]", "wait", "taskwait()", "check(x)\ntaskwait()", "taskwait()\ncheck(x)"
    ),
    "omp_049_missing_free": Verdict(
        "leak",
        *("b", "[0:512, 0:512]", "map", "target_exit_data(map=[release(b)])"),
        "    target_exit_data(",
        "    target_exit_data(map=[release(b)])\n    target_exit_data(",
    ),
    "acc_010_partially_missing_data": Verdict(
        "uninitialised", "b", "[1:512, 0:512]", "map", "copyin(b)", "copyin=[a], create=[b]", "copyin=[a, b]"
    ),
    "acc_012_partially_missing_enter_data": Verdict(
        "uninitialised",
        *("b", "[1:512, 0:512]", "update", "acc.update(device=[b])"),
        "    kernel(a, b, c)",
        "    acc.update(device=[b])\n    kernel(a, b, c)",
    ),
    "acc_020_partially_outdated_data": Verdict(
        "stale-host", "c", "[256:512]", "map", "copy(c)", "copyin=[a, b, c]", "copyin=[a, b], copy=[c]"
    ),
    "acc_034_missing_free": Verdict(
        "leak", "b", "[0:512, 0:512]", "map", "acc.exit_data(delete=[b])", "delete=[a]", "delete=[a, b]"
    ),
    "acc_035_async": Verdict(
        "race", "c", "[0:512]", "wait", "acc.wait()", "check(c)\nacc.wait()", "acc.wait()\ncheck(c)"
    ),
}
CLEAN = ("omp_051_working", "acc_009_missing_data", "acc_013_missing_exit_data", "acc_038_working")
SEEDS = few({None, 1}, (None, 0, 1, 2))


def test_every_program_has_a_verdict():
    """The table has each program of the folder, and no other."""
    assert {path.stem for path in PROGRAMS.glob("*.py")} == {*VERDICTS, *CLEAN}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", VERDICTS)
def test_finding(name, seed):
    """A faulty program has one finding, with its rule, its lines and its fix, under every schedule."""
    path, verdict = PROGRAMS / f"{name}.py", VERDICTS[name]
    text = path.read_text()
    (finding,) = findings_of(path, seed=seed)
    second = finding.second.line if finding.second is not None else None
    assert (finding.rule, finding.item, finding.elements) == verdict[:3]
    assert (finding.first.line, second) == (marked(text, "first"), marked(text, "second"))
    assert (finding.fix.kind, finding.fix.text, finding.fix.line) == (*verdict[3:5], marked(text, "fix"))
    assert {finding.first.file, finding.fix.file} == {str(path)}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", VERDICTS)
def test_corrected(tmp_path, name, seed):
    """With the fix of its finding, a program is clean."""
    verdict = VERDICTS[name]
    text = (PROGRAMS / f"{name}.py").read_text()
    assert text.count(verdict.old) == 1
    path = tmp_path / "corrected.py"
    path.write_text(
        text.replace(verdict.old, verdict.new).replace("import numpy", "import offload as omp\nimport numpy")
    )
    assert findings_of(path, seed=seed) == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CLEAN)
def test_clean(name, seed, capsys):
    """A program without a mistake has no finding, and computes the right result."""
    assert findings_of(PROGRAMS / f"{name}.py", seed=seed) == ()
    assert capsys.readouterr().out == "Memory Access Issue visible: False\n"
