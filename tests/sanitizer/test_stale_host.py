"""The rule ``stale-host``: host code reads bytes that a device has changed since the last copy."""


def test_mapped_to_only(check):
    """A region whose array is mapped ``to`` keeps its result on the device, so ``tofrom`` is missing there."""
    found = check(
        """
        @omp.target(map=[to("x")])  # fix
        def double(x):
            x *= 2  # first
        x = np.ones(8)
        double(x)
        print(x.sum())  # second
        """,
        *("stale-host", "map", "map(tofrom: x)"),
    )
    assert (found.item, found.elements, found.count) == ("x", "[0:8]", 1)
    assert (found.first.what, found.first.name, found.second.what) == ("write", "double", "read")


def test_still_mapped(check):
    """While the array is mapped, an update before the read is missing."""
    check(
        """
        @omp.target
        def double(x):
            x *= 2  # first
        x = np.ones((4, 4))
        with omp.target_data(map=[tofrom(x)]):
            double(x)
            print(x[1, 2])  # second, fix
        """,
        *("stale-host", "update", "target_update(from_=[x])"),
    )


def test_exit_data(check):
    """An array that ``exit data`` releases is copied back by ``from`` there."""
    check(
        """
        @omp.target
        def double(x):
            x *= 2  # first
        x = np.ones(8)
        omp.target_enter_data(map=[to(x)])
        double(x)
        omp.target_exit_data(map=[release(x)])  # fix
        print(x)  # second
        """,
        *("stale-host", "map", "map(from: x)"),
    )


def test_parts(check):
    """The elements are those that were read and changed."""
    found = check(
        """
        @omp.target
        def change(x):
            x[2:6, 1:3] = 7  # first
        x = np.ones((8, 4))
        with omp.target_data(map=[to(x)]):
            change(x)
            omp.target_update(from_=[x[:4]])
            print(x.sum())  # second, fix
        """,
        *("stale-host", "update", "target_update(from_=[x])"),
    )
    assert found.elements == "[4:6, 1:3]"


def test_packed_storage(check):
    """Columns that are stored packed on the device are the columns of the host."""
    found = check(
        """
        @omp.target
        def change(part):
            part[1] = 7  # first
        x = np.ones((4, 6))
        part = x[:, 2:5]
        omp.target_enter_data(map=[to(part)])
        change(part)
        omp.target_exit_data(map=[release(part)])  # fix
        print(x.sum())  # second
        """,
        *("stale-host", "map", "map(from: x)"),
    )
    assert found.elements == "[1:2, 2:5]"


def test_without_order(check):
    """A read that nothing orders with the write on the device is one under every schedule."""
    check(
        """
        @omp.target(nowait=True)
        def double(x):
            x *= 2  # first
        x = np.ones(8)
        with omp.target_data(map=[to(x)]):
            double(x)
            print(x.sum())  # second, fix
        """,
        *("stale-host", "update", "target_update(from_=[x])"),
        seeds=(None, *range(8)),
    )


def test_many_times(findings):
    """One pair of lines has one finding, which counts how often they met."""
    (found,) = findings(
        """
        @omp.target
        def double(x):
            x *= 2
        x = np.ones(8)
        with omp.target_data(map=[tofrom(x)]):
            for _ in range(5):
                double(x)
                print(x[3])
        """
    )
    assert found.count == 5
    assert found.elements == "[3:4]"


def test_right_programs(clean):
    """Copies back, updates and writes on the host make host and device agree, and other bytes do not matter."""
    clean(
        """
        @omp.target
        def double(x):
            x *= 2
        @omp.target
        def half(x):
            x[:4] = 0
        x, y, z = np.ones(8), np.ones(8), np.ones(8)
        double(x)
        print(x)
        with omp.target_data(map=[to(x), to(y), to(z)]):
            double(x)
            omp.target_update(from_=[x])
            print(x)
            double(y)
            y[...] = 3
            print(y)
            half(z)
            print(z[4:])
        """
    )


def test_scratch_data(clean):
    """A firstprivate array is the region's own, so the host's array stays valid."""
    clean(
        """
        @omp.target(firstprivate=["x"], map=[from_("y")])
        def twice(x, y):
            x *= 2
            y[...] = x
        x, y = np.ones(8), np.zeros(8)
        twice(x, y)
        print(x, y)
        """
    )


def test_failed_body(clean):
    """A region that fails copies nothing back, and the host's data is what it was."""
    clean(
        """
        @omp.target
        def fails(x):
            x *= 2
            raise OSError
        x = np.ones(8)
        try:
            fails(x)
        except OSError:
            print(x)
        """
    )


def test_copy_after_the_mapping(clean):
    """A copy to the device makes the two agree, also after the mapping in which the device had changed the bytes."""
    clean(
        """
        @omp.target(map=[to("x")])
        def scratch(x):
            x *= 2
        @omp.target(map=[to("x"), from_("y")])
        def use(x, y):
            y[...] = x
        x, y = np.ones(8), np.zeros(8)
        scratch(x)
        use(x, y)
        print(x, y)
        """
    )
