"""The rule ``race``: nothing orders two conflicting accesses."""

import pytest

SEEDS = (None, *range(4))


def test_host_reads_without_a_wait(check):
    """The host must wait for a deferred region before it reads its result."""
    found = check(
        """
        @omp.target(nowait=True, map=[tofrom("x")])  # first
        def double(x):
            x *= 2
        x = np.ones(8)
        double(x)
        print(x.sum())  # second, fix
        omp.taskwait()
        """,
        *("race", "wait", "taskwait()"),
        seeds=SEEDS,
    )
    assert (found.item, found.elements) == ("x", "[0:8]")
    assert (found.first.what, found.second.what, found.second.name) == ("copy", "read", "MainThread")


def test_host_writes_without_a_wait(check):
    """The host must not change data that a deferred region still copies to the device."""
    check(
        """
        @omp.target(nowait=True, map=[to("x"), from_("y")])  # first
        def copy(x, y):
            y[...] = x
        x, y = np.ones(8), np.zeros(8)
        copy(x, y)
        x[...] = 5  # second, fix
        omp.taskwait()
        """,
        *("race", "wait", "taskwait()"),
        seeds=SEEDS,
    )


def test_two_regions(check):
    """Two deferred regions on present data need dependences."""
    check(
        """
        @omp.target(nowait=True)
        def fill(x):
            x[...] = 3  # first
        @omp.target(nowait=True, map=[from_("y")])  # fix
        def copy(x, y):
            y[...] = x  # second
        x, y = np.ones(8), np.zeros(8)
        with omp.target_data(map=[to(x)]):
            fill(x)
            copy(x, y)
        """,
        *("race", "depend", 'depend=[out("x")] on fill, depend=[in_("x")] on copy'),
        seeds=SEEDS,
    )


def test_two_host_tasks(check):
    """Two host tasks need dependences."""
    check(
        """
        @omp.task  # fix
        def add(x):
            x += 1  # first, second
        x = np.ones(8)
        add(x)
        add(x)
        omp.taskwait()
        """,
        *("race", "depend", 'depend=[inout("x")] on add, called twice'),
        seeds=SEEDS,
    )


def test_region_and_update(check):
    """A copy of an update needs a dependence on the region before it."""
    check(
        """
        @omp.target(nowait=True)
        def fill(x):
            x[...] = 3  # first
        x = np.ones(8)
        with omp.target_data(map=[to(x)]):
            fill(x)
            omp.target_update(from_=[x], nowait=True)  # second, fix
            omp.taskwait()
        print(x)
        """,
        *("race", "depend", 'depend=[out("x")] on fill, depend=[out(x)] on target update'),
        seeds=SEEDS,
    )


def test_queues(check):
    """Operations of two queues are not in order, except where one maps the data."""
    check(
        """
        @acc.parallel(present=["x"])
        def double(x):
            x *= 2  # first
        @acc.parallel(present=["x"])  # fix
        def shift(x):
            x += 1  # second
        x = np.ones(8)
        with acc.data(copy=[x]):
            double.options(async_=1)(x)
            shift.options(async_=2)(x)
            acc.wait()
        """,
        *("race", "depend", 'depend=[inout("x")] on double, depend=[inout("x")] on shift'),
        seeds=SEEDS,
    )


def test_work_on_a_stream(findings):
    """Work that a host task leaves on a stream is no part of the task, so ``detach`` is missing."""
    found = findings(
        """
        def fill(d):
            d[...] = 5
        @omp.task(depend=[out("done")])
        def start(d, done):
            omp.current_stream().launch(fill, d)
        @omp.target(depend=[in_("done")], nowait=True, map=[from_("y")])
        def copy(d, y, done):
            y[...] = d
        d, y = omp.target_alloc(8, "f8"), np.zeros(8)
        start(d, 1)
        copy(d, y, 1)
        omp.taskwait()
        omp.device(0).synchronize()
        omp.target_free(d)
        """
    )
    assert {one.rule for one in found} == {"race"}
    assert {one.fix.kind for one in found} == {"detach"}


def test_no_other_rule_reports_bytes_in_a_race(findings):
    """Bytes in a race are in no other finding, whichever access came first in this run."""
    for seed in SEEDS:
        found = findings(
            """
            @omp.target(nowait=True)
            def fill(x):
                x[...] = 3
            x = np.ones(8)
            with omp.target_data(map=[to(x)]):
                fill(x)
                omp.target_update(from_=[x], nowait=True)
                omp.taskwait()
                print(x)
            """,
            seed=seed,
        )
        assert [one.rule for one in found] == ["race"]


def test_right_programs(clean):
    """Dependences, waits, groups, results and queues order accesses; other elements and reads need no order."""
    clean(
        """
        @omp.target(nowait=True)
        def double(x):
            x *= 2
        @omp.task
        def fill(x, value):
            x[...] = value
        @acc.parallel(copy=["x"], async_=1)
        def shift(x):
            x += 1
        x, y = np.ones(8), np.ones(8)
        for _ in range(3):
            double.options(depend=[inout(x)])(x)
        fill.options(depend=[out(x)])(x, 7)
        omp.taskwait()
        print(x)
        with omp.taskgroup():
            fill(x[:4], 1)
            fill(x[4:], 2)
            fill(y[::2], 3)
            fill(y[1::2], 4)
        print(x, y)
        task = double(x)
        task.result()
        print(x)
        shift(x)
        shift(x)
        acc.wait(1)
        print(x)
        """,
        seeds=SEEDS,
    )


def test_data_that_nobody_has_changed(clean):
    """Copying back bytes that the device has not changed is not a write: deferred regions may share an operand."""
    clean(
        """
        @omp.target(nowait=True)
        def add(operand, y):
            y += operand
        operand = np.ones(8)
        results = [np.zeros(8) for _ in range(4)]
        for y in results:
            add(operand, y)
        print(operand)
        omp.taskwait()
        print(results)
        """,
        seeds=(None, *range(8)),
    )


@pytest.mark.parametrize("size", [8, 1000])
def test_memory_that_is_used_again(clean, size):
    """Memory that was freed and is used again is other memory, on the host and on the device."""
    clean(
        f"""
        @omp.target(nowait=True)
        def double(x):
            x *= 2
        for _ in range(20):
            x = np.ones({size})
            double(x).result()
            double(np.ones({size}))
            del x
        omp.taskwait()
        """
    )


def test_memory_of_bytes_that_is_used_again(clean):
    """Memory of `bytes`, which cannot be watched, is other memory once its array is gone."""
    clean(
        """
        @omp.target(nowait=True, depend=[inout("x")])
        def on_device(x):
            y = x.astype("f4")
            y[1:-1] += 1
            x[...] = y
        @omp.task
        def on_host():
            a = np.zeros(65_536, "u1")
            a[...] = np.frombuffer(bytes(4 * 65_536), "u1")[:65_536]
        x = np.zeros(65_536)
        for _ in range(8):
            on_device(x)
            on_host()
        omp.taskwait()
        """
    )


def test_memory_of_an_owner_that_stays(check):
    """Arrays that are gone over memory that stays do not hide a race there."""
    check(
        """
        import mmap
        memory = mmap.mmap(-1, 4096)
        @omp.task
        def fill():
            np.frombuffer(memory, "u1")[:] = 1  # first
        fill()
        print(np.frombuffer(memory, "u1")[0])  # second, fix
        omp.taskwait()
        """,
        *("race", "wait", "taskwait()"),
    )


@pytest.mark.parametrize("num_threads", [0, 2])
def test_function_of_numpy_as_a_body(check, num_threads):
    """The accesses of a function of NumPy that is itself the body of a task belong to the construct's line."""
    found = check(
        """
        a, b = np.ones(8), np.zeros(8)
        omp.target_enter_data(map=[to(a)], nowait=True)  # first
        omp.task(np.copyto)(a, b)  # second, fix
        omp.taskwait()
        omp.target_exit_data(map=[release(a)])
        """,
        "race",
        "depend",
        "depend=[in_(a)] on target enter data, depend=[out(a)] on copyto",
        num_threads=num_threads,
    )
    assert (found.first.what, found.second.what) == ("copy", "write")
    assert found.second.name == "copyto"
