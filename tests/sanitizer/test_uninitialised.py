"""The rule ``uninitialised``: a body, or host code, reads storage that has never been written."""


def test_allocated_by_the_region(check):
    """A region that reads an array which it allocates needs ``to``."""
    found = check(
        """
        @omp.target(map=[alloc("x"), from_("y")])  # first, fix
        def copy(x, y):
            y[...] = x  # second
        x, y = np.ones(8), np.zeros(8)
        copy(x, y)
        """,
        *("uninitialised", "map", "map(to: x)"),
    )
    assert (found.item, found.elements, found.first.what) == ("x", "[0:8]", "map")


def test_mapped_from(check):
    """A region that adds to an array which it maps ``from`` needs ``tofrom``."""
    check(
        """
        @omp.target(map=[from_("x")])  # first, fix
        def add(x):
            x += 1  # second
        x = np.ones(8)
        add(x)
        """,
        *("uninitialised", "map", "map(tofrom: x)"),
    )


def test_created_by_a_region_around(check):
    """The region that has created the storage is the place of the clause."""
    check(
        """
        @omp.target
        def add(x, y):
            y += x  # second
        x, y = np.ones(8), np.zeros(8)
        with omp.target_data(map=[tofrom(y), alloc(x)]):  # first, fix
            add(x, y)
        """,
        *("uninitialised", "map", "map(to: x)"),
    )


def test_created_by_enter_data(check):
    """Storage that ``enter data`` has created needs an update before it is read."""
    check(
        """
        @omp.target(map=[tofrom("y")])
        def add(x, y):
            y += x  # second
        x, y = np.ones(8), np.zeros(8)
        omp.target_enter_data(map=[alloc(x)])  # first
        add(x, y)  # fix
        omp.target_exit_data(map=[release(x)])
        """,
        *("uninitialised", "update", "target_update(to=[x])"),
    )


def test_partly_written(check):
    """Only the elements count that nobody has written."""
    found = check(
        """
        @omp.target(map=[alloc("x"), from_("y")])  # first, fix
        def copy(x, y):
            x[:3] = 1
            y[...] = x  # second
        x, y = np.ones(8), np.zeros(8)
        copy(x, y)
        """,
        *("uninitialised", "map", "map(to: x)"),
    )
    assert found.elements == "[3:8]"


def test_copied_back(check):
    """Host code that reads what was copied back from unwritten storage reads it, too."""
    found = check(
        """
        @omp.target(map=[from_("x")])  # first, fix
        def fill(x):
            x[::2] = 1
        x = np.zeros(8)
        fill(x)
        print(x.sum())  # second
        """,
        *("uninitialised", "map", "map(tofrom: x)"),
    )
    assert (found.elements, found.first.what) == ("[1:8]", "copy")


def test_copied_back_and_there_again(check):
    """A copy carries "never written" along: to the host, and from there to a device."""
    check(
        """
        @omp.target(map=[from_("x")])  # first, fix
        def fill(x):
            x[4:] = 1
        @omp.target(map=[to("x"), from_("y")])
        def copy(x, y):
            y[...] = x  # second
        x, y = np.zeros(8), np.zeros(8)
        fill(x)
        copy(x, y)
        """,
        *("uninitialised", "map", "map(tofrom: x)"),
    )


def test_openacc(check):
    """An array that a region creates and reads needs ``copyin``."""
    check(
        """
        @acc.parallel(create=["x"], copyout=["y"])  # first, fix
        def copy(x, y):
            y[...] = x  # second
        x, y = np.ones(8), np.zeros(8)
        copy(x, y)
        """,
        *("uninitialised", "map", "copyin(x)"),
    )


def test_right_programs(clean):
    """Storage may be written before it is read, wholly or by parts, by zeros, and by an update."""
    clean(
        """
        @omp.target(map=[alloc("work"), tofrom("y")])
        def square(work, y):
            work[...] = y
            y *= work
        @omp.target
        def add(x, y):
            y += x
        @acc.parallel(present=["x"], copy=["y"])
        def add_acc(x, y):
            y += x
        work, x, y, z = np.empty(8), np.ones(8), np.ones(8), np.empty(8)
        square(work, y)
        print(y)
        with omp.target_data(map=[alloc(x), tofrom(y)]):
            omp.target_update(to=[x])
            add(x, y)
        with acc.data(create=[acc.zero(x)]):
            add_acc(x, y)
        with omp.target_data(map=[from_(z)]):
            omp.target(lambda z: z[:4].fill(1))(z)
            omp.target(lambda z: z[4:].fill(1))(z)
        print(y, z)
        """
    )


def test_the_host_writes_what_was_copied_back(clean):
    """A write on the host makes the bytes valid again."""
    clean(
        """
        @omp.target(map=[from_("x")])
        def fill(x):
            x[:4] = 1
        x = np.zeros(8)
        fill(x)
        x[4:] = 2
        print(x)
        """
    )
