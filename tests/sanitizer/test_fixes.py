"""Fixes that are followed literally: each faulty program becomes right by the edits that its report names."""

from __future__ import annotations

from typing import NamedTuple

import pytest

import offload as omp
from offload.sanitizer.sanitizer import Sanitizer
from tests.sanitizer.runs import marked

SEEDS = (None, 0, 1, 2)


class Faulty(NamedTuple):
    """A faulty program.

    ``edits`` are the lines of the right program by lines of the faulty one, which may be several; ``report`` is the
    report's fix, in which ``{mark}`` stands for the line with that mark.
    """

    text: str
    fix: str
    report: str
    edits: dict[str, str]
    devices: str = "sim:1"


PROGRAMS = {
    "another task is detached": Faulty(
        """
        @omp.target(nowait=True, depend=[out("a")])
        def fill(a):
            a += 1
        @omp.task
        def other():
            pass
        a, event = np.zeros(4), omp.Event()
        fill(a)
        other.options(detach=event)()
        print(a.sum())  # fix
        event.fulfill()
        """,
        "taskwait(depend=[in_(a)])",
        "call taskwait(depend=[in_(a)]) before {fix}",
        {"print(a.sum())  # fix": "omp.taskwait(depend=[in_(a)])\nprint(a.sum())"},
    ),
    "another task waits for an event, without a clause": Faulty(
        """
        @omp.task  # task
        def fill(a):
            a[:] = 1
        @omp.task
        def other():
            pass
        a, event = np.zeros(4), omp.Event()
        fill(a)
        other.options(depend=[in_(event)])()
        a += 1  # fix
        event.fulfill()
        """,
        'taskwait(depend=[inout(a)]), depend=[out("a")] on fill',
        'add depend=[out("a")] to fill at {task} and call taskwait(depend=[inout(a)]) before {fix}',
        {
            "@omp.task  # task": '@omp.task(depend=[out("a")])',
            "a += 1  # fix": "omp.taskwait(depend=[inout(a)])\na += 1",
        },
    ),
    "the task itself is detached": Faulty(
        """
        @omp.task
        def fill(a):
            a[:] = 1
        a, event = np.zeros(4), omp.Event()
        fill.options(detach=event)(a)
        print(a.sum())  # fix
        event.fulfill()
        """,
        "taskwait()",
        "fulfil the event of fill and call taskwait() before {fix}",
        {"event.fulfill()": "", "print(a.sum())  # fix": "event.fulfill()\nomp.taskwait()\nprint(a.sum())"},
    ),
    "one of two clauses is there": Faulty(
        """
        @omp.task  # fix
        def fill(block):
            block[:] = 1
        @omp.task(depend=[inout("block")])
        def double(block):
            block *= 2
        block = np.zeros(8)
        fill(block)
        double(block)
        """,
        'depend=[out("block")] on fill',
        'add depend=[out("block")] to fill at {fix}',
        {"@omp.task  # fix": '@omp.task(depend=[out("block")])'},
    ),
    "the clause reads only": Faulty(
        """
        @omp.task(depend=[in_("x")])
        def use(x):
            return x.sum()
        @omp.task(depend=[in_("y")])  # fix
        def double(y):
            y *= 2
        x = np.zeros(8)
        use(x)
        double(x)
        """,
        'depend=[inout("y")] on double',
        'change in_("y") to inout("y") in depend of double at {fix}',
        {'@omp.task(depend=[in_("y")])  # fix': '@omp.task(depend=[inout("y")])'},
    ),
    "the function is called twice": Faulty(
        """
        @omp.task  # fix
        def add(x):
            x += 1
        x = np.zeros(8)
        add(x)
        add(x)
        """,
        'depend=[inout("x")] on add, called twice',
        'add depend=[inout("x")] to add at {fix}, called twice',
        {"@omp.task  # fix": '@omp.task(depend=[inout("x")])'},
    ),
    "one decorator needs two items": Faulty(
        """
        @omp.task  # fix
        def copy(a, b):
            b[...] = a
        x, y, z = np.zeros(4), np.zeros(4), np.zeros(4)
        copy(x, y)
        copy(y, z)
        """,
        'depend=[out("b"), in_("a")] on copy',
        'add depend=[out("b"), in_("a")] to copy at {fix}',
        {"@omp.task  # fix": '@omp.task(depend=[out("b"), in_("a")])'},
    ),
    "one decorator has one of two items": Faulty(
        """
        @omp.task(depend=[out("b")])  # fix
        def copy(a, b):
            b[...] = a
        x, y, z = np.zeros(4), np.zeros(4), np.zeros(4)
        copy(x, y)
        copy(y, z)
        """,
        'depend=[in_("a")] on copy',
        'add in_("a") to depend of copy at {fix}',
        {'@omp.task(depend=[out("b")])  # fix': '@omp.task(depend=[out("b"), in_("a")])'},
    ),
    "a child of an earlier task": Faulty(
        """
        @omp.task
        def child(x):
            x += 1
        @omp.task  # outer
        def outer(data):
            child(data)
        @omp.task  # fix
        def later(x):
            x *= 2
        x = np.ones(8)
        outer(x)
        later(x)
        """,
        'depend=[inout("data")] on outer, depend=[inout("x")] on later, taskwait() at the end of outer',
        'add depend=[inout("data")] to outer at {outer} and add depend=[inout("x")] to later at {fix} and call '
        "taskwait() at the end of outer",
        {
            "@omp.task  # outer": '@omp.task(depend=[inout("data")])',
            "    child(data)": "    child(data)\n    omp.taskwait()",
            "@omp.task  # fix": '@omp.task(depend=[inout("x")])',
        },
    ),
    "a child of a task, and the host": Faulty(
        """
        @omp.task
        def child(x):
            x += 1
        @omp.task
        def outer(data):
            child(data)
        x = np.ones(8)
        outer(x)
        print(x.sum())  # fix
        """,
        "barrier()",
        "call barrier() before {fix}",
        {"print(x.sum())  # fix": "omp.barrier()\nprint(x.sum())"},
    ),
    "the update of another device": Faulty(
        """
        @omp.target(device=1)
        def double(x):
            x *= 2
        x = np.ones(8)
        with omp.target_data(map=[tofrom(x)], device=1):
            double(x)
            print(x.sum())  # fix
        """,
        "target_update(from_=[x], device=1)",
        "call target_update(from_=[x], device=1) before {fix}",
        {"    print(x.sum())  # fix": "    omp.target_update(from_=[x], device=1)\n    print(x.sum())"},
        devices="sim:2",
    ),
    "a leak on another device": Faulty(
        """
        x = np.ones(8)
        omp.target_enter_data(map=[to(x)], device=1)  # fix
        """,
        "target_exit_data(map=[release(x)], device=1)",
        "call target_exit_data(map=[release(x)], device=1) after {fix}",
        {
            "omp.target_enter_data(map=[to(x)], device=1)  # fix": "omp.target_enter_data(map=[to(x)], device=1)\n"
            "omp.target_exit_data(map=[release(x)], device=1)"
        },
        devices="sim:2",
    ),
    "a mapper": Faulty(
        """
        class Particles:
            def __init__(self):
                self.x, self.v = np.zeros(4), np.ones(4)
        omp.declare_mapper(Particles, lambda p: [tofrom(p.x), alloc(p.v)])  # fix
        @omp.target
        def move(particles):
            particles.x += particles.v
        some = Particles()
        with omp.target_data(map=[some]):
            move(some)
        """,
        "map(to: p.v)",
        "map(to: p.v): change alloc(p.v) to to(p.v) in the mapper at {fix}",
        {
            "omp.declare_mapper(Particles, lambda p: [tofrom(p.x), alloc(p.v)])  # fix": "omp.declare_mapper("
            "Particles, lambda p: [tofrom(p.x), to(p.v)])"
        },
    ),
    "a parameter of another name": Faulty(
        """
        @omp.target(map=[to("part")])  # fix
        def square(part):
            part *= part
        def process(row):
            for part in np.split(row, 2):
                square(part)
            return row.sum()
        process(np.arange(4.0))
        """,
        "map(tofrom: part)",
        'map(tofrom: part): change to("part") to tofrom("part") at {fix}',
        {'@omp.target(map=[to("part")])  # fix': '@omp.target(map=[tofrom("part")])'},
    ),
    "a directive string": Faulty(
        """
        from offload.pragma import omp as directive
        @directive
        def main():
            y = np.ones(4)
            with directive("task shared(y)"):  # task
                y += 1
            with directive("task shared(y) depend(in: y)"):  # fix
                y *= 2
        main()
        """,
        "depend(inout: y) on main.<omp task, line 9>, depend(inout: y) on main.<omp task, line 11>",
        "add depend(inout: y) to main.<omp task, line 9> at {task} and change depend(in: y) to depend(inout: y) of "
        "main.<omp task, line 11> at {fix}",
        {
            'with directive("task shared(y)"):  # task': 'with directive("task shared(y) depend(inout: y)"):',
            'with directive("task shared(y) depend(in: y)"):  # fix': 'with directive("task shared(y)'
            ' depend(inout: y)"):',
        },
    ),
    "a map clause of OpenACC": Faulty(
        """
        @acc.parallel(copyin=["x"])
        def double(x):
            x *= 2
        z = np.ones(4)
        with acc.data(copyin=[z]):  # fix
            double(z)
        print(z)
        """,
        "copy(z)",
        "copy(z): change copyin=[z] to copy=[z] at {fix}",
        {"with acc.data(copyin=[z]):  # fix": "with acc.data(copy=[z]):"},
    ),
    "an exit without a copy": Faulty(
        """
        @omp.target
        def double(x):
            x *= 2
        x = np.ones(8)
        omp.target_enter_data(map=[to(x)])
        double(x)
        omp.target_exit_data(map=[release(x)])  # fix
        print(x)
        """,
        "map(from: x)",
        "map(from: x): change release(x) to from_(x) at {fix}",
        {"omp.target_exit_data(map=[release(x)])  # fix": "omp.target_exit_data(map=[from_(x)])"},
    ),
    "storage that regions in a loop use": Faulty(
        """
        @omp.target(map=[to("table", present=True)])
        def look_up(table):
            table.sum()
        def step(table):
            look_up(table)
        table = np.arange(8.0)
        omp.target_enter_data(map=[to(table)])
        for _ in range(3):
            for _ in range(2):
                step(table)
            step(table)  # fix
        print(table)
        """,
        "target_exit_data(map=[release(table)])",
        "call target_exit_data(map=[release(table)]) after {fix}",
        {"    step(table)  # fix": "    step(table)\nomp.target_exit_data(map=[release(table)])"},
    ),
    "storage whose last use is not waited for": Faulty(
        """
        @omp.target(nowait=True, is_device_ptr=["d"])
        def fill(d):
            d[...] = 1
        def main():
            d = omp.target_alloc(8, "f8")
            fill(d)  # fix
        main()
        """,
        "target_free(d)",
        "call taskwait() and then target_free(d) after {fix}",
        {"    fill(d)  # fix": "    fill(d)\n    omp.taskwait()\n    omp.target_free(d)"},
    ),
}


def edited(text, edits):
    """Return a program with some of its lines replaced, each once."""
    for line, other in edits.items():
        (found,) = [one for one in text.splitlines() if one.strip() == line.strip()]
        margin = " " * (len(found) - len(found.lstrip()) - (len(line) - len(line.lstrip())))
        text = text.replace(found, "\n".join(margin + one for one in other.splitlines()))
    return text


@pytest.mark.parametrize("name", PROGRAMS)
def test_fix(findings, tmp_path, name):
    """The fix names what is missing and where, under every schedule, and the program with it has no finding."""
    faulty = PROGRAMS[name]
    for seed in SEEDS:
        (found,) = findings(faulty.text, seed=seed, devices=faulty.devices)
        path = tmp_path / "program.py"
        lines = {mark: f"{path}:{marked(path.read_text(), mark)}" for mark in ("fix", "task", "outer")}
        assert (found.fix.text, found.fix.line) == (faulty.fix, marked(path.read_text(), "fix"))
        shown = found._repr_mimebundle_()["text/plain"].splitlines()[-1]
        assert shown.split("fix", 1)[1].strip() == faulty.report.format(**lines)
    for seed in SEEDS:
        assert findings(edited(faulty.text, faulty.edits), seed=seed, devices=faulty.devices) == ()


FREES = {
    "target_free": ("d = omp.target_alloc(4, 'f8')", "omp.target_free(d)", "freed on device 0"),
    "delete": (
        "d = np.ones(4)\nomp.target_enter_data(map=[to(d)])",
        "omp.target_exit_data(map=[omp.delete(d)])",
        "unmapped on device 0",
    ),
    "release": (
        "d = np.ones(4)\nomp.target_enter_data(map=[to(d)])",
        "omp.target_exit_data(map=[release(d)])",
        "unmapped on device 0",
    ),
}


@pytest.mark.parametrize("is_first", [True, False, None])
@pytest.mark.parametrize("name", FREES)
def test_free_without_a_wait(findings, name, is_first):
    """Storage that is freed or unmapped while an unordered region writes to it is a race, whichever comes first."""
    made, freed, shown = FREES[name]
    made = made.replace("\n", "\n        ")
    (found,) = findings(
        f"""
        import threading
        written, freed = threading.Event(), threading.Event()
        @omp.target(nowait=True)
        def fill(d):
            if {is_first is False}:
                freed.wait(5)
            d[...] = 1  # first
            written.set()
        {made}
        fill(d)
        if {is_first is True}:
            written.wait(5)
        {freed}  # second
        freed.set()
        try:
            omp.taskwait()
        except* omp.errors.RegionClosedError:
            pass
        """
    )
    assert (found.rule, found.item, found.first.what, found.second.what) == ("race", "d", "write", "map")
    assert found.second.shown == shown
    assert found.fix.kind == ("wait" if name == "target_free" else "depend")


def test_free_that_is_ordered(clean):
    """Storage is freed after a wait, by a task that depends on its last use, or while regions only read or allocate."""
    clean(
        """
        @omp.target(nowait=True, depend=[inout("d")])
        def fill(d):
            d[...] = 1
        @omp.task(depend=[inout("d")])
        def free(d):
            omp.target_free(d)
        @omp.target(nowait=True, map=[tofrom("x"), alloc("work")])
        def compute(x, work):
            work[...] = x
            x += work
        d, e = omp.target_alloc(4, "f8"), omp.target_alloc(4, "f8")
        fill(d)
        free(d)
        fill(e)
        omp.taskwait()
        omp.target_free(e)
        x, work = np.ones(4), np.empty(4)
        omp.target_enter_data(map=[alloc(work)])
        compute(x, work)
        omp.target_exit_data(map=[release(work)])
        omp.taskwait()
        """,
        seeds=SEEDS,
    )


def test_names_of_leaks(findings):
    """The arrays of a leak have one order in every run."""
    for seed in SEEDS:
        (found,) = findings(
            """
            b, a = np.ones(4), np.ones(4)
            omp.target_enter_data(map=[to(b, a)])
            """,
            seed=seed,
        )
        assert (found.item, found.fix.text) == ("a, b", "target_exit_data(map=[release(a, b)])")


def test_threading_is_not_seen(findings, capsys):
    """A race between host tasks comes with a note that locks and queues of threading are not seen; others do not."""
    program = """
        @{construct}
        def add(x):
            x += 1
        x = np.zeros(4)
        add(x)
        add(x)
        omp.taskwait()
    """
    for construct, is_noted in (("omp.task", True), ("omp.target(nowait=True)", False)):
        assert findings(program.format(construct=construct))
        assert ("events and queues of threading" in capsys.readouterr().err) is is_noted


def test_mistake_of_the_sanitizer(monkeypatch, capsys):
    """If the sanitizer itself fails, the report begins with the traceback, and the runtime raises where it may."""

    def fail(*args, **options):
        raise ValueError("a mistake")

    monkeypatch.setattr(Sanitizer, "_access", fail)
    program = omp.task(lambda x: x.__iadd__(1))
    from offload.sanitizer import numpy as np

    with omp.Runtime("sim:1", sanitize=True):
        program(np.ones(3))
    text = capsys.readouterr().err
    assert text.startswith("error: the sanitizer failed")
    assert text.index("ValueError: a mistake") < text.index("offload sanitizer: 0 findings")
    with pytest.raises(omp.errors.SanitizerError, match="a mistake"), omp.Runtime("sim:1", sanitize="error"):
        program(np.ones(3))
