"""The rule ``leak``: storage is mapped or allocated when the runtime ends."""


def test_mapped(check):
    """Storage that ``enter data`` has mapped and nobody releases is a leak."""
    found = check(
        """
        x = np.ones(8)
        omp.target_enter_data(map=[to(x)])  # first, fix
        """,
        *("leak", "map", "target_exit_data(map=[release(x)])"),
    )
    assert found.second is None
    assert (found.item, found.elements, found.first.what) == ("x", "[0:8]", "map")


def test_allocated(check):
    """Storage of ``target_alloc`` that nobody frees is a leak."""
    check(
        """
        d = omp.target_alloc((2, 4), "f8")  # first, fix
        """,
        *("leak", "free", "target_free(d)"),
    )


def test_openacc(check):
    """Storage of OpenACC's ``enter data`` needs an ``exit data``."""
    check(
        """
        x = np.ones(8)
        acc.enter_data(copyin=[x])  # first, fix
        """,
        *("leak", "map", "acc.exit_data(delete=[x])"),
    )


def test_counted_twice(check):
    """An array that is mapped twice and released once stays, and its first mapping is named."""
    check(
        """
        x = np.ones(8)
        omp.target_enter_data(map=[to(x)])  # first, fix
        omp.target_enter_data(map=[to(x)])
        omp.target_exit_data(map=[release(x)])
        """,
        *("leak", "map", "target_exit_data(map=[release(x)])"),
    )


def test_right_programs(clean):
    """Released, deleted, freed and declared storage is not a leak, nor is the storage of a region."""
    clean(
        """
        x, y, z = np.ones(8), np.ones(8), np.ones(8)
        omp.declare_target(z)
        omp.target_enter_data(map=[to(x)])
        omp.target_exit_data(map=[omp.delete(x)])
        omp.target(lambda y, z: y.fill(1))(y, z)
        d = omp.target_alloc(8)
        omp.target_free(d)
        """
    )
