"""Requests of MPI as sources of events: what needs ranks, and what a whole process of its own."""

from __future__ import annotations

import pytest

from tests.mpi.launching import STRIKES, needs_mpi, on_ranks, run, run_tests
from tests.profiles import few

pytestmark = needs_mpi


@on_ranks(1, 4)
def test_on_ranks(n_ranks):
    """`ranks/test_requests.py`."""
    run_tests(n_ranks, "test_requests.py")


@on_ranks(1)
def test_troubles_on_ranks(n_ranks):
    """`ranks/test_troubles.py`."""
    run_tests(n_ranks, "test_troubles.py")


@pytest.mark.slow
def test_on_a_rank_that_spins():
    """The same without naps."""
    run_tests(1, "test_requests.py", "-k", "not naps", env={"OFFLOAD_MPI_POLL": "spin"})


@pytest.mark.slow
def test_a_large_object_in_small_pieces():
    """An object of 16 MB that comes in 8 KB a poll, where memory of processes cannot be copied, takes no second."""
    program = (
        COMMUNICATOR
        + """
from offload import mpi
with omp.Runtime("none"):
    mpi.send_object(b"x", 1 - comm.rank)  # the first one takes longer
    mpi.recv_object(1 - comm.rank).result()
    times_s = []
    for _ in range(4):  # some may meet a busy machine
        comm.Barrier()
        began_s = time.perf_counter()
        if comm.rank == 0:
            comm.send(b"x" * 16_000_000, 1)
        else:
            assert len(mpi.recv_object(0).result()) == 16_000_000
        times_s.append(time.perf_counter() - began_s)
    if comm.rank == 1:
        print(min(times_s) < 1)
"""
    )
    assert outcome(program, 2, env={"MPIR_CVAR_CH4_CMA_ENABLE": "0"}) == (0, ["True"])


def outcome(program, n_ranks=1, **options):
    """Run a program of its own on ranks; return the exit status and what it has printed, lines in order."""
    status, printed = run(n_ranks, "-c", HEAD + program, **options)
    return status, sorted(printed.splitlines())


HEAD = """
import threading, time
import numpy as np
import offload as omp
"""

COMMUNICATOR = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
"""


@pytest.mark.parametrize("level", few(1, ["serialized", "single", "funneled"]))
def test_a_thread_level_that_does_not_do(level):
    """The error names the level that there is, and what to write."""
    program = f"import mpi4py\nmpi4py.rc.thread_level = {level!r}" + COMMUNICATOR
    program += """
from offload import mpi
for refused in (lambda: omp.Event().fulfill_on(comm.Ibarrier()), mpi.ibarrier, lambda: mpi.recv_object(0)):
    try:
        refused()
    except omp.UsageError as error:
        print(error)
"""
    status, told = outcome(program)
    assert (status, len(told)) == (0, 3), told
    for text in told:
        assert f"MPI_THREAD_{level.upper()}" in text
        assert 'mpi4py.rc.thread_level = "multiple"' in text


def test_mpi_that_is_not_initialised():
    """It is a `UsageError`, as it is where MPI is finalised."""
    program = """
import mpi4py
mpi4py.rc.initialize = mpi4py.rc.finalize = False
from mpi4py import MPI
from offload import mpi
for prepare in (int, MPI.Init_thread, MPI.Finalize):
    prepare()
    for use in (lambda: omp.Event().fulfill_on(MPI.REQUEST_NULL), lambda: mpi.ibarrier().result()):
        try:
            use()
            print("fine")
        except omp.UsageError as error:
            print(str(error).split(";")[0])
"""
    assert outcome(program) == (
        0,
        [
            "MPI Ibarrier: MPI is finalised",
            "MPI Ibarrier: MPI is not initialised",
            "fine",
            "fine",
            "fulfill_on(…): MPI is finalised",
            "fulfill_on(…): MPI is not initialised",
        ],
    )


def test_an_unknown_way_of_polling():
    """`OFFLOAD_MPI_POLL` means something, or is refused where the first request is named."""
    program = (
        COMMUNICATOR
        + """
event = omp.Event()
for _ in range(2):
    try:
        event.fulfill_on(comm.Ibarrier())
    except omp.UsageError as error:
        print(error, event)
"""
    )
    status, printed = outcome(program, env={"OFFLOAD_MPI_POLL": "always"})
    assert (status, len(set(printed))) == (0, 1)
    assert printed[0].startswith("OFFLOAD_MPI_POLL='always': give 'spin'")
    assert printed[0].endswith("<Event open>")


@on_ranks(1, 2)
def test_the_end_of_a_process_waits(n_ranks):
    """The default runtime is waited for at the end of the process, with its requests; then MPI is finalised."""
    program = (
        COMMUNICATOR
        + """
event, buffer = omp.Event(), np.zeros(1)
omp.task(detach=event, depend=[omp.out(buffer)])(event.fulfill_on)(comm.Irecv(buffer, (comm.rank + 1) % comm.size))
omp.task(depend=[omp.in_(buffer)])(lambda: print(f"received {buffer[0]}\\n", end=""))()
threading.Timer(0.3, comm.Send, (np.ones(1), (comm.rank - 1) % comm.size)).start()
"""
    )
    assert outcome(program, n_ranks) == (0, ["received 1.0"] * n_ranks)


@pytest.mark.parametrize(
    "make",
    few(
        1,
        [
            "comm.irecv(source=0, tag=3)",
            "comm.Recv_init(np.zeros(1), 0, 3)",
            "MPI.Grequest.Start(None, None, None)",
            "[comm.Irecv(np.zeros(1), 0, 3), MPI.REQUEST_NULL]",
            "comm.Issend(np.zeros(1), 0, 3)",
        ],
    ),
)
def test_kinds_that_nobody_waits_for(make):
    """Whatever the kind, the process ends, and says that an event waits; MPI may complain of a send besides."""
    program = (
        COMMUNICATOR
        + f"""
event, request = omp.Event(), {make}
if isinstance(request, MPI.Prequest):
    request.Start()
event.fulfill_on(request)
"""
    )
    _, printed = outcome(program)
    assert "CleanupWarning: 1 events wait for requests of MPI" in "\n".join(printed)


@pytest.mark.parametrize("ends", few(1, ["pass", "MPI.Finalize()"]))
def test_requests_that_nobody_waits_for(ends):
    """At the end they are told of, and forgotten; an event that is asked afterwards has failed."""
    program = (
        COMMUNICATOR
        + f"""
event = omp.Event()
request = comm.Irecv(np.zeros(1), 0, 3)
event.fulfill_on(request)
{ends}
if event.failure is not None:
    print(type(event.failure).__name__)
"""
    )
    status, printed = outcome(program)
    printed = "\n".join(printed)
    assert status == 0
    assert "CleanupWarning: 1 events wait for requests of MPI" in printed
    assert ("TransportError" in printed) == (ends != "pass")


def test_an_interrupt_with_an_open_request():
    """Ctrl-C ends the wait, and a second one the end of the runtime; the process ends, and tells what was left."""
    program = (
        COMMUNICATOR
        + STRIKES
        + """
event, buffer = omp.Event(), np.zeros(1)
try:
    with omp.Runtime("sim:1"):
        omp.task(detach=event)(event.fulfill_on)(comm.Irecv(buffer, 0))
        striking.start()
        try:
            omp.taskwait()
        finally:
            came.set()
except KeyboardInterrupt:
    print("caught it")
"""
    )
    status, printed = outcome(program)
    assert status == 0, printed
    assert "caught it" in "\n".join(printed)  # perhaps with something of MPICH's in the same line


def test_a_rank_that_is_killed_ends_the_job():
    """MPICH's launcher ends all ranks where one dies: none goes on, and nothing hangs."""
    program = (
        COMMUNICATOR
        + """
import os, signal
event = omp.Event()
if comm.rank == 1:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGKILL)).start()
omp.task(detach=event)(event.fulfill_on)(comm.Irecv(np.zeros(1), (comm.rank + 1) % 3))
omp.taskwait()
print("never")
"""
    )
    _, printed = outcome(program, 3)
    assert "never" not in printed


def test_without_mpi_nothing_of_it_is_imported():
    """`import offload`, and events of other sources, load no mpi4py."""
    program = """
import sys
event = omp.Event()
try:
    event.fulfill_on([])
except omp.EventError:
    pass
event.fulfill()
print([name for name in sys.modules if "mpi4py" in name])
"""
    assert outcome(program) == (0, ["[]"])


def test_calls_that_come_too_late():
    """A call whose turn comes after ``MPI.Finalize`` fails its task, and a wait looks for no request any more."""
    program = (
        COMMUNICATOR
        + """
from offload import mpi
from offload.events.progress import progress
with omp.Runtime("sim:1", num_threads=2):
    held, array = omp.Event(), np.zeros(1)
    received, open_ = np.zeros(1), mpi.irecv(np.zeros(1), 0, 9)
    omp.task(detach=held, depend=[omp.out(array)])(int)()
    late = [mpi.isend(array, 0, 3), mpi.ibarrier(depend=[omp.in_(array)])]
    while not progress.n_open:
        time.sleep(0.01)
    MPI.Finalize()
    held.fulfill()
    omp.task(time.sleep)(0.2).result()
    for task in (open_, *late):
        try:
            task.result()
        except Exception as error:
            print(type(error).__name__, str(error)[:40])
"""
    )
    status, printed = outcome(program)
    assert status == 0, printed
    for name in ("Isend", "Ibarrier"):
        assert f"UsageError {name}: MPI is finalised" in "\n".join(printed)
    assert "TransportError Irecv" in "\n".join(printed)


def test_a_way_of_polling_that_is_unknown_fails_each_call():
    """What waits for its turn behind a call that nobody looks after is issued as well, and does not wait for ever."""
    program = (
        COMMUNICATOR
        + """
from offload import mpi
with omp.Runtime("sim:1", num_threads=2):
    held, array = omp.Event(), np.zeros(1)
    omp.task(detach=held, depend=[omp.out(array)])(int)()
    calls = [mpi.ibarrier(depend=[omp.in_(array)]), mpi.ibarrier(), mpi.ibarrier()]
    omp.task(int)().result()
    held.fulfill()
    for task in calls:
        try:
            task.result()
        except omp.UsageError as error:
            print(str(error)[:23])
"""
    )
    assert outcome(program, env={"OFFLOAD_MPI_POLL": "bad"}) == (0, ["OFFLOAD_MPI_POLL='bad':"] * 3)


def test_calls_behind_those_of_an_interrupted_runtime():
    """They fail, and name what was left out; on another communicator all is well."""
    program = (
        COMMUNICATOR
        + STRIKES
        + """
from offload import mpi
held, array, other = omp.Event(), np.zeros(1), comm.Dup()
try:
    with omp.Runtime("sim:1", num_threads=2):
        omp.task(detach=held, depend=[omp.out(array)])(int)()
        mpi.ibarrier(depend=[omp.in_(array)], name="first")
        mpi.ibarrier(name="second")
        striking.start()
        try:
            omp.taskwait()
        finally:
            came.set()
except KeyboardInterrupt:
    striking.join()
with omp.Runtime("sim:1", num_threads=2):
    for _ in range(2):
        try:
            mpi.ibarrier().result()
        except omp.TransportError as error:
            print("Ibarrier on MPI_COMM_WORLD (second-" in str(error))
    print(mpi.ibarrier(comm=other).result())
"""
    )
    status, printed = outcome(program)
    assert status == 0, printed
    assert (printed.count("True"), printed.count("None")) == (2, 1), printed
