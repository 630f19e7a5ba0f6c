"""The findings of a program are the same under every schedule: lines, elements, names, fixes and counts."""

from __future__ import annotations

import pytest

import offload as omp
from tests.sanitizer.runs import marked

SEEDS = (None, *range(6))
ENDS_OF_MAPPINGS = {
    "exit data": "omp.target_exit_data(map=[from_(x)])  # second, fix",
    "deferred exit data": "omp.target_exit_data(map=[from_(x)], nowait=True)  # second, fix",
    "part": "omp.target_exit_data(map=[from_(x[2:6])])  # second, fix",
    "update": "omp.target_update(from_=[x])  # second, fix",
}


@pytest.fixture
def same(findings, tmp_path):
    """Return a function that runs a program under several schedules, and returns its findings and its text."""

    def run(text, **options):
        found, *others = [findings(text, seed=seed, **options) for seed in SEEDS]
        for other in others:
            assert [one.as_dict() for one in other] == [one.as_dict() for one in found]
        return found, (tmp_path / "program.py").read_text()

    return run


def lines(finding):
    return finding.first.line, finding.second.line


@pytest.mark.parametrize("end", ENDS_OF_MAPPINGS)
def test_end_of_a_mapping(same, end):
    """A deferred region is in a race with a copy to the host that nothing orders with it, in whichever order they come.

    The region makes storage of its own if it comes after the end of the mapping.
    """
    (found,), text = same(
        f"""
        @omp.target(nowait=True)
        def double(x):
            x *= 2  # first
        x = np.ones(8)
        omp.target_enter_data(map=[to(x)])
        double(x)
        {ENDS_OF_MAPPINGS[end]}
        omp.taskwait()
        omp.target_exit_data(map=[release(x)])
        """
    )
    assert (found.rule, found.fix.kind, found.item) == ("race", "depend", "x")
    assert lines(found) == (marked(text, "first"), marked(text, "second"))
    assert found.fix.line == marked(text, "fix")
    assert found.elements == ("[2:6]" if end == "part" else "[0:8]")


def test_end_of_target_data(same):
    """The end of a `target_data` without its group races with a region in the block."""
    (found,), text = same(
        """
        @omp.target(nowait=True)
        def double(x):
            x *= 2  # first
        x = np.ones(8)
        with omp.target_data(map=[tofrom(x)], nogroup=True):  # second
            double(x)
        omp.taskwait()
        """
    )
    assert (found.rule, lines(found)) == ("race", (marked(text, "first"), marked(text, "second")))


@pytest.mark.parametrize("is_early", [True, False])
def test_region_that_keeps_a_mapping(findings, is_early):
    """A region that has begun and keeps the storage beyond the end of the mapping races with that end all the same."""
    (found,) = findings(
        f"""
        import threading
        ended = threading.Event()
        @omp.target(nowait=True)
        def double(x):
            ended.wait(0 if {is_early} else 5)
            x *= 2
        x = np.ones(8)
        omp.target_enter_data(map=[to(x)])
        double(x)
        omp.target_exit_data(map=[from_(x)], nowait={not is_early})
        ended.set()
        omp.taskwait()
        """
    )
    assert (found.rule, found.first.what, found.second.what) == ("race", "write", "copy")


def test_mapping_that_is_kept_on_purpose(findings):
    """The end of one of two references copies nothing, and so is in no race."""
    assert not findings(
        """
        @omp.target(nowait=True)
        def double(x):
            x *= 2
        x = np.ones(8)
        omp.target_enter_data(map=[to(x)])
        omp.target_enter_data(map=[to(x)])
        double(x)
        omp.target_exit_data(map=[from_(x)])
        omp.taskwait()
        omp.target_exit_data(map=[from_(x)])
        """
    )


def test_device_array_of_a_mapping_that_has_ended(findings, tmp_path):
    """A region with the device array of mapped data races with the end of the mapping, if it is not refused."""
    for seed in SEEDS:
        try:
            (found,) = findings(
                """
                @omp.target(nowait=True, is_device_ptr=["d"])
                def double(d):
                    d *= 2  # first
                x = np.ones(8)
                with omp.target_data(map=[tofrom(x)], use_device_ptr=[x], nogroup=True) as (d,):  # second
                    double(d)
                omp.taskwait()
                """,
                seed=seed,
            )
        except ExceptionGroup as group:
            if group.split(omp.RegionClosedError)[1] is not None:
                raise
            continue
        text = (tmp_path / "program.py").read_text()
        assert (found.rule, lines(found)) == ("race", (marked(text, "first"), marked(text, "second")))


def test_storage_that_is_used_again(same):
    """Mappings of different arrays one after the other are in no race because they have the same storage."""
    found, _ = same(
        """
        @omp.target(nowait=True, map=[tofrom("x")])
        def double(x):
            x *= 2
        arrays = [np.ones(8) for _ in range(6)]
        for x in arrays:
            double(x)
        omp.taskwait()
        """
    )
    assert not found


def test_partial_overlaps(same):
    """A race names exactly the elements that both accesses have, by the variable of the program."""
    found, text = same(
        """
        @omp.task
        def fill(a):
            a[0:6] = 1  # fill
        @omp.task
        def scale(b):
            b[4:8] *= 2  # scale
        @omp.target(nowait=True, map=[tofrom("part")])  # region
        def change(part):
            part[2:4] += 1
        x = np.ones(8)
        fill(x)
        scale(x)
        change(x[3:])
        print(x[::2].max())  # host
        omp.taskwait()
        """
    )
    names = ("fill", "scale", "region", "host")
    line = {name: marked(text, name) for name in names}
    assert {one.item for one in found} == {"x"}
    assert {lines(one): one.elements for one in found} == {
        (line["fill"], line["scale"]): "[4:6]",
        (line["fill"], line["region"]): "[3:6]",
        (line["fill"], line["host"]): "[0:5]",
        (line["scale"], line["region"]): "[4:8]",
        (line["scale"], line["host"]): "[4:7]",
        (line["region"], line["host"]): "[6:7]",
    }


def test_a_write_between_the_body_and_the_copy_back(findings):
    """The copy back of a region counts as a write, though a task writes on the host after the body has."""
    (found,) = findings(
        """
        import threading
        changed, filled = threading.Event(), threading.Event()
        @omp.task
        def fill(a):
            assert changed.wait(60)
            a[0:6] = 1
            filled.set()
        @omp.target(nowait=True, map=[tofrom("part")])
        def change(part):
            part[2:4] += 1
            changed.set()
            assert filled.wait(60)
        x = np.ones(8)
        fill(x)
        change(x[3:])
        omp.taskwait()
        """,
        num_threads=1,
    )
    assert (found.second.what, found.elements, found.count) == ("copy", "[3:6]", 2)
    assert 'inout("part")' in found.fix.text


def test_strided_overlap(same):
    """The box of a race between strided accesses holds the shared elements only."""
    (found,), _ = same(
        """
        @omp.task
        def rows(x):
            x[2:5] = 1
        @omp.task
        def columns(x):
            x[:, ::3] = 2
        x = np.zeros((8, 8))
        rows(x)
        columns(x)
        omp.taskwait()
        """
    )
    assert found.elements == "[2:5, 0:7]"


@pytest.mark.parametrize("is_nested", [True, False])
def test_work_left_on_a_stream(same, is_nested):
    """The fix of a missing `detach` names the task that has left the work, and the task that came first is first."""
    (found,), text = same(
        f"""
        def work(d):
            d += 1  # left
        @omp.task  # fix
        def leave(d):
            omp.current_stream().launch(work, d)
        @omp.task
        def outer(d):
            leave(d)
            omp.taskwait()
        @omp.target(nowait=True, is_device_ptr=["d"])
        def use(d):
            d *= 2  # other
        d = omp.target_alloc(4, "f8")
        omp.target_memset(d, 0)
        (outer if {is_nested} else leave)(d)
        use(d)
        omp.taskwait()
        omp.device(0).synchronize()
        omp.target_free(d)
        """
    )
    assert (found.rule, found.fix.kind, found.fix.line) == ("race", "detach", marked(text, "fix"))
    assert lines(found) == (marked(text, "left"), marked(text, "other"))
    assert found.first.name == "the stream of leave"


def test_children_come_before_the_next_sibling(same):
    """The child of an earlier task is the first side, although it may be generated after the later task."""
    (found,), text = same(
        """
        @omp.task
        def child(x):
            x += 1  # first
        @omp.task
        def outer(x):
            child(x)
        @omp.task
        def later(x):
            x *= 2  # second
        x = np.ones(8)
        outer(x)
        later(x)
        omp.barrier()
        """
    )
    assert lines(found) == (marked(text, "first"), marked(text, "second"))


def test_counts(same):
    """An access that is repeated in one stretch counts once, whichever side came first."""
    (found,), _ = same(
        """
        @omp.task
        def fill(x):
            x[...] = 1
        x = np.ones(8)
        fill(x)
        for _ in range(5):
            x.sum()
        omp.taskwait()
        """
    )
    assert found.count == 1


def test_mapping_that_is_made_later(findings, tmp_path):
    """A region that may come before or after the beginning of a mapping copies back itself, as it does if it is first.

    Nothing orders it with the host's read, also where it finds the storage that the program maps after the read.
    """
    for seed in SEEDS:
        found = findings(
            """
            @omp.target(nowait=True, depend=[inout("x")])  # first
            def double(x):
                x *= 2
            x = np.ones(8)
            double(x)
            print(x.sum())  # second, fix
            with omp.target_data(map=[tofrom(x)]):
                double(x)
            """,
            seed=seed,
        )
        text = (tmp_path / "program.py").read_text()
        (one,) = [one for one in found if lines(one) == (marked(text, "first"), marked(text, "second"))]
        assert (one.rule, one.fix.kind, one.fix.line, one.count) == ("race", "wait", marked(text, "fix"), 1)


@pytest.mark.parametrize("end", ["from_", "from_, nowait", "release"])
def test_read_after_an_end_that_nothing_orders(same, end):
    """A region that may come after the end of the mapping, and copies back itself then, races with later host reads."""
    kind, _, nowait = end.partition(", ")
    found, text = same(
        f"""
        @omp.target(nowait=True)  # region
        def double(x):
            x *= 2  # write
        x = np.ones(8)
        omp.target_enter_data(map=[to(x)])
        double(x)
        omp.target_exit_data(map=[{kind}(x)]{", nowait=True" if nowait else ""})  # end
        print(x.sum())  # read
        omp.taskwait()
        omp.target_exit_data(map=[release(x)])
        """
    )
    line = {name: marked(text, name) for name in ("region", "write", "end", "read")}
    expected = {(line["region"], line["read"]), (line["write"], line["end"])}
    assert {(one.rule, lines(one)) for one in found} == {("race", pair) for pair in expected}


def test_write_that_another_one_covers(same):
    """A task that nothing orders with two ordered writes races with both, whichever of the three comes first."""
    found, text = same(
        """
        @omp.task(depend=[out("x")])
        def one(x):
            x += 1  # one
        @omp.task(depend=[out("x")])
        def two(x):
            x[...] = 2  # two
        @omp.task
        def free(x):
            x.sum()  # free
        x = np.ones(8)
        one(x)
        two(x)
        free(x)
        omp.taskwait()
        """
    )
    line = {name: marked(text, name) for name in ("one", "two", "free")}
    assert {lines(one) for one in found} == {(line["one"], line["free"]), (line["two"], line["free"])}


def test_work_that_a_host_task_leaves_on_a_stream(same):
    """Work that no task waits for is in a race with the end of its storage, also if it runs after all else."""
    (found,), text = same(
        """
        def scale(d):
            d *= 2  # first
        @omp.task
        def enqueue(d):
            omp.current_stream().launch(scale, d)
        d = omp.target_alloc(4, np.float64)
        omp.target_memcpy(d, np.ones(4))
        enqueue(d)
        omp.taskwait()
        omp.target_free(d)  # second
        """
    )
    assert (found.rule, found.fix.kind, found.item) == ("race", "detach", "d")
    assert lines(found) == (marked(text, "first"), marked(text, "second"))
