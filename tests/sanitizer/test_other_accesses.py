"""Accesses that are not operations on arrays: loop functions, typed copies, copies of memory, and calls of MPI."""

import pytest

SEEDS = (None, 0, 1)
LOOPS = """
@omp.target_loop(nowait=True, map=[to("x"), {map_type}("y")]){first}
def add(x, y):
    for i in range(x.size):
        y[i] = y[i] + x[i]{second}
@omp.target_loop(nowait=True)
def scatter(x, index, y):
    for i in range(index.size):
        y[index[i]] = x[i]
"""


def test_loop_reads_unwritten_storage(check):
    """The read of a loop function is the line of its body."""
    check(
        LOOPS.format(map_type="from_", first="  # first, fix", second="  # second")
        + "x, y = np.ones(8), np.zeros(8)\nadd(x, y)\nomp.taskwait()\n",
        *("uninitialised", "map", "map(tofrom: y)"),
    )


def test_loop_without_a_wait(check):
    """The host waits for a deferred loop before it reads the result."""
    check(
        LOOPS.format(map_type="tofrom", first="  # first", second="")
        + "x, y = np.ones(8), np.zeros(8)\nadd(x, y)\nprint(y)  # second, fix\nomp.taskwait()\n",
        *("race", "wait", "taskwait()"),
    )


def test_elements_of_loops(findings):
    """A loop touches the elements that its indices name, as the arrays have them on the device."""
    (found,) = findings(
        LOOPS.format(map_type="tofrom", first="", second="")
        + """
x, y, index = np.ones(2), np.zeros(8), np.array([6, 3])
with omp.target_data(map=[to(y)]):
    scatter(x, index, y)
    omp.taskwait()
    print(y[:3], y[7:], y[4:6])
    print(y[3:])
"""
    )
    assert (found.rule, found.elements, found.second.line) == ("stale-host", "[3:7]", 19)


def test_right_loops(clean):
    """Loops that depend, wait and map as they need have no finding, on a device, on the host and in a body."""
    clean(
        LOOPS.format(map_type="tofrom", first="", second="")
        + """
@omp.target_loop(reduction={"+": ["total"]})
def sum_of(x):
    total = 0.0
    for i in range(x.size):
        total += x[i]
    return total
@omp.target(map=[tofrom("y")])
def region(x, y):
    y += 1
    add(x, y)
    y *= 2
x, y, index = np.ones(8), np.zeros(8), np.arange(0, 8, 2)
for _ in range(3):
    add.options(depend=[inout(y)])(x, y)
scatter.options(depend=[inout(y)])(x, index, y)
omp.taskwait()
print(y, sum_of(y))
region(x, y)
add.options(if_=False)(x, y)
omp.taskwait()
print(y)
""",
        seeds=SEEDS,
    )


def test_loops_on_several_devices(clean):
    """A loop on several devices writes on each, and its result comes back."""
    clean(
        """
        @omp.target_loop(devices="all", filter="never")
        def add(x, y):
            for i in range(x.size):
                y[i] = y[i] + x[i]
        @omp.target_loop(devices="all", filter="always")
        def shift(x, y):
            for i in range(1, x.size):
                y[i] = x[i - 1]
        x, y = np.arange(64.0), np.zeros(64)
        add(x, y)
        print(y)
        with omp.target_data(map=[tofrom(x), tofrom(y)], devices="all"):
            for _ in range(3):
                shift(x, y)
                shift(y, x)
        print(x, y)
        """,
        devices="sim:2",
    )


COPY = """
from offload import parray
A = parray.ArrayType((4, 6))
B = parray.ArrayType((A[1], A[0]))
"""


def test_typed_copy_without_a_wait(check):
    """A deferred typed copy writes its target until it is waited for."""
    check(
        COPY + "a, b = np.arange(24.0), np.zeros(24)\n"
        "parray.copy(A, a, to=(B, b), nowait=True)  # first\n"
        "print(b)  # second, fix\nomp.taskwait()\n",
        *("race", "wait", "taskwait()"),
    )


def test_boxes_of_a_typed_copy(clean):
    """A typed copy accesses the boxes of its plan, and nothing besides."""
    clean(
        COPY
        + """
a, b = np.arange(48.0), np.zeros(48)
parray.copy(A, a[:24], to=(B, b[:24]), nowait=True)
print(b[24:], a)
omp.taskwait()
d = omp.target_alloc(24, "f8")
parray.copy(A, a[:24], to=(B, d))
parray.copy(B, d, to=(A, b[24:]))
print(b)
omp.target_free(d)
"""
    )


def test_copies_between_host_arrays(check):
    """A deferred copy of memory from host to host is an access."""
    check(
        """
        a, b = np.arange(24.0), np.zeros(24)
        omp.target_memcpy_async(b, a)  # first
        print(b)  # second, fix
        omp.taskwait()
        """,
        *("race", "wait", "taskwait()"),
    )


@pytest.fixture
def mpi():
    """Skip where MPI is not installed."""
    pytest.importorskip("mpi4py")


SELF = """
from mpi4py import MPI
from offload import mpi
a, b = np.arange(8.0), np.zeros(8)
"""


@pytest.mark.usefixtures("mpi")
def test_receive_without_a_wait(check):
    """A receive writes its buffer until its task is complete."""
    check(
        SELF + "mpi.irecv(b, source=0, comm=MPI.COMM_SELF)  # first\n"
        "mpi.isend(a, dest=0, comm=MPI.COMM_SELF)\n"
        "print(b)  # second, fix\nomp.taskwait()\n",
        *("race", "wait", "taskwait()"),
    )


@pytest.mark.usefixtures("mpi")
def test_send_of_data_that_changes(check):
    """A send reads its buffer until its task is complete."""
    check(
        SELF + "mpi.irecv(b, source=0, comm=MPI.COMM_SELF)\n"
        "mpi.isend(a, dest=0, comm=MPI.COMM_SELF)  # first\n"
        "a[...] = 3  # second, fix\nomp.taskwait()\n",
        *("race", "wait", "taskwait()"),
    )


@pytest.mark.usefixtures("mpi")
def test_right_calls(clean):
    """Calls that are waited for, or that tasks name, are in order."""
    clean(
        SELF
        + """
@omp.task(depend=[inout("b")])
def double(b):
    b *= 2
for _ in range(3):
    mpi.irecv(b, source=0, comm=MPI.COMM_SELF, depend=[out(b)])
    mpi.isend(a, dest=0, comm=MPI.COMM_SELF, depend=[in_(a)])
    double(b)
    omp.taskwait()
    print(a, b)
    a += 1
"""
    )
