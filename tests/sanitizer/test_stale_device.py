"""The rule ``stale-device``: a body reads bytes that host code has changed since the last copy."""

import pytest


def test_changed_on_the_host(check):
    """After a write on the host an update to the device is missing before the region."""
    found = check(
        """
        @omp.target(map=[from_("y")])
        def copy(x, y):
            y[...] = x  # second
        x, y = np.ones(8), np.zeros(8)
        with omp.target_data(map=[to(x)]):
            x[2:] = 5  # first
            copy(x, y)  # fix
        """,
        *("stale-device", "update", "target_update(to=[x])"),
    )
    assert (found.item, found.elements) == ("x", "[2:8]")


def test_in_a_host_task(check):
    """A host task is host code as well."""
    check(
        """
        @omp.target(nowait=True, depend=[in_("x")], map=[from_("y")])
        def copy(x, y):
            y[...] = x  # second
        @omp.task(depend=[out("x")])
        def fill(x):
            x.fill(5)  # first
        x, y = np.ones(8), np.zeros(8)
        with omp.target_data(map=[to(x)]):
            fill(x)
            copy(x, y)  # fix
        """,
        *("stale-device", "update", "target_update(to=[x])"),
    )


def test_present_items_are_not_copied(check):
    """A ``map(to:)`` of an item that is present copies nothing."""
    check(
        """
        @omp.target(map=[to("x"), from_("y")])
        def copy(x, y):
            y[...] = x  # second
        x, y = np.ones(8), np.zeros(8)
        omp.target_enter_data(map=[to(x)])
        x += 1  # first
        copy(x, y)  # fix
        omp.target_exit_data(map=[release(x)])
        """,
        *("stale-device", "update", "target_update(to=[x])"),
    )


def test_two_devices(check):
    """A copy back from one device makes the copy on another device old."""
    check(
        """
        @omp.target(device=0)
        def change(x):
            x += 1
        @omp.target(device=1, map=[from_("y")])
        def copy(x, y):
            y[...] = x  # second
        x, y = np.ones(8), np.zeros(8)
        omp.target_enter_data(map=[to(x)], device=1)
        omp.target_enter_data(map=[to(x)], device=0)
        change(x)
        omp.target_exit_data(map=[from_(x)], device=0)  # first
        copy(x, y)  # fix
        omp.target_exit_data(map=[release(x)], device=1)
        """,
        *("stale-device", "update", "target_update(to=[x], device=1)"),
        devices="sim:2",
    )


@pytest.mark.parametrize("update", ["omp.target_update(to=[x])", "copy.options(map=[to(x, always=True)])(x, y)"])
def test_right_programs(clean, update):
    """An update makes them agree, as ``always`` does."""
    clean(
        f"""
        @omp.target(map=[from_("y")])
        def copy(x, y):
            y[...] = x
        x, y = np.ones(8), np.zeros(8)
        with omp.target_data(map=[to(x)]):
            x[2:] = 5
            {update}
            copy(x, y)
        """
    )


def test_the_device_writes_first(clean):
    """Bytes that the body writes before it reads them are not old."""
    clean(
        """
        @omp.target
        def fill(x, y):
            x[...] = 3
            y[...] = x
        x, y = np.ones(8), np.zeros(8)
        with omp.target_data(map=[to(x), tofrom(y)]):
            x[2:] = 5
            fill(x, y)
        """
    )


def test_the_host_may_prepare_the_next_step(clean):
    """A write on the host that comes after the region in the program does not make the region's data old."""
    clean(
        """
        @omp.target(nowait=True, map=[from_("y")])
        def copy(x, y):
            y[...] = x
        x, y = np.ones(8), np.zeros(8)
        with omp.target_data(map=[to(x)]):
            copy(x, y)
            x[...] = 5
        """,
        seeds=(None, *range(6)),
    )
