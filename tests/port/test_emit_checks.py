"""The checks before a form is written: each of them notices a form that is wrong."""

import pytest

from offload.port.checks import FormCheck
from offload.port.facts import Recorded
from offload.port.marks import numbered
from offload.port.modules import module_names
from offload.port.parts import FormParts
from offload.port.program import ProgramText
from offload.port.trial import observe, rehearse
from offload.port.uses import StreamUses
from offload.port.waits import WaitPlan
from offload.port.writing import FormWriter, TaskForm
from tests.port.emitting import HEAD

PROGRAM = HEAD + (
    "e = cp.zeros(4)\n"
    "for i in range(3):\n"
    "    d.set(h[i], stream=s)\n"
    "    with s:\n"
    "        e += d\n"
    "    e.get(stream=s, out=out[i], blocking=False)\n"
    "s.synchronize()\n"
    "print(out.shape)\n"
    "total = out.sum()\n"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return the form of the program, its plan of waits, the original's run, and the file of the form."""
    folder = tmp_path_factory.mktemp("checks")
    path = folder / "program.py"
    path.write_text(PROGRAM)
    program = ProgramText(str(path), PROGRAM)
    names = module_names(program)
    observed = observe(str(path), [], "sim")
    assert not observed.error
    parts = FormParts(Recorded(program, StreamUses(program, names), numbered(program), observed.log, observed.run))
    waits = WaitPlan(parts)
    return FormWriter(parts, waits, names).form(), waits, observed, str(folder / "form.py")


def reasons(made, old="", new=""):
    """Return the differences that the checks find in the form with a changed text."""
    form, waits, observed, path = made
    assert old in form.text
    changed = TaskForm([line._replace(text=line.text.replace(old, new)) if old else line for line in form.lines])
    return FormCheck(changed, waits, observed, rehearse(path, changed.text, [], "sim")).reasons


def test_the_form_itself_passes(made):
    """The form that is written has no differences."""
    assert reasons(made) == []


def test_other_bytes_are_noticed(made):
    """A copy that brings other bytes to the host is named by its line, even if nothing is printed."""
    assert "line 15: this copy brings other bytes to the host in the task form" in reasons(made, "e += d", "e += d * 2")


def test_another_text_is_noticed(made):
    """The first line that differs is shown."""
    assert reasons(made, "print(out.shape)", "print(out.size)") == [
        "line 17: the task form prints '12' instead of '(3, 4)' (line 1 of the output)"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("depend(in: d) depend(inout: e)", "depend(inout: e)", "lines 12 and 14"),
        ("depend(in: d) depend(inout: e)", "depend(in: d)", "lines 14 and 15"),
        (", depend=[offload.in_(e), offload.out(out[i])]", "", "lines 14 and 15"),
    ],
)
def test_a_missing_dependence_is_noticed(made, old, new, expected):
    """Each pair of conflicting accesses of the original must be ordered by the graph, however the run went."""
    assert any(reason.startswith(f"{expected}: nothing orders") for reason in reasons(made, old, new))


def test_a_missing_wait_is_noticed(made):
    """The host's accesses come after a wait."""
    found = reasons(made, 'omp("taskwait")', "pass")
    assert "lines 15 and 18: nothing orders their accesses in the task form" in found


def test_a_missing_task_is_noticed(made):
    """The form has a task for each block and each copy."""
    found = reasons(made, 'with omp("target nowait depend(in: d) depend(inout: e)"):', "if True:")
    assert any("tasks" in reason or "order" in reason for reason in found)


def test_a_form_that_fails_is_noticed(made):
    """The error is shown with the line of the program that the form's line comes from."""
    (found,) = reasons(made, "e += d", "e += d.nothing")
    assert found.startswith("line 14: the task form fails: AttributeError")


def test_the_sanitizer_looks_on(made):
    """Findings of the sanitizer in the form are reasons too."""
    assert any("the sanitizer finds `race`" in reason for reason in reasons(made, 'omp("taskwait")', "pass"))
