"""Requests of MPI as sources of events, on any number of ranks: each sends to the one on its right, perhaps itself."""

from __future__ import annotations

import os
import pickle
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress

import numpy as np
import pytest
from mpi4py import MPI

import offload as omp
from offload import in_, mpi, out
from offload.events.progress import progress
from tests.patience import until


def completed(request):
    """Have a task that is complete with a request; return it and its event."""
    event = omp.Event()
    return omp.task(detach=event)(event.fulfill_on)(request), event


tells_of_truncation = pytest.mark.skipif(
    MPI.COMM_WORLD.size == 1 and "Open MPI" in MPI.Get_library_version(),
    reason="Open MPI cuts off a message to oneself that is too long, and says nothing",
)


# -- kinds of requests ---------------------------------------------------------------------------------
class Kind:
    """A kind of request: ``make`` gives one that is open until ``arrive`` has been called on all ranks."""

    def __init__(self, comm, left, right):
        self.comm, self.left, self.right = comm, left, right

    def check(self, value):
        assert value is None


class Receive(Kind):
    def make(self):
        self.buffer = np.zeros(3)
        return self.comm.Irecv(self.buffer, self.left, 5)

    def arrive(self):
        self.comm.Send(np.full(3, self.comm.rank + 1.0), self.right, 5)

    def check(self, value):
        assert (value.Get_source(), value.Get_tag(), value.Get_count(MPI.DOUBLE)) == (self.left, 5, 3)
        assert (self.buffer == self.left + 1).all()


class Synchronous(Kind):
    """A send that is complete when it is received; its status says nothing, and some libraries have none."""

    def make(self):
        self.buffer = np.full(3, self.comm.rank + 1.0)
        return self.comm.Issend(self.buffer, self.right, 5)

    def arrive(self):
        received = np.zeros(3)
        self.comm.Recv(received, self.left, 5)
        assert (received == self.left + 1).all()

    def check(self, value):
        assert isinstance(value, MPI.Status | None)


class Pickled(Kind):
    def make(self):
        return self.comm.irecv(source=self.left, tag=5)

    def arrive(self):
        self.comm.send({"from": self.comm.rank}, self.right, 5)

    def check(self, value):
        assert value == {"from": self.left}


class Persistent(Receive):
    def make(self):
        self.buffer = np.zeros(3)
        self.request = self.comm.Recv_init(self.buffer, self.left, 5)
        self.request.Start()
        return self.request

    def check(self, value):
        super().check(value)
        self.request.Free()


class Generalised(Kind):
    def make(self):
        self.request = MPI.Grequest.Start(None, None, None)
        return self.request

    def arrive(self):
        self.request.Complete()

    def check(self, value):
        assert isinstance(value, MPI.Status | None)


class Several(Receive):
    """A list of which some are complete from the beginning."""

    def make(self):
        return [super().make(), MPI.REQUEST_NULL, self.comm.Isend(np.zeros(0), MPI.PROC_NULL)]

    def check(self, value):
        received, null, _ = value
        super().check(received)
        assert null is None


KINDS = [Receive, Synchronous, Pickled, Persistent, Generalised, Several]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", ["before the body", "in the body", "after it"])
def test_kinds(runtime, comm, left, right, kind, moment):
    """A task is complete when its body has ended and its request is, whatever comes first."""
    kind = kind(comm, left, right)
    request = kind.make()
    event, ran, done = omp.Event(), [], ("done",)
    if moment == "before the body":
        event.fulfill_on(request)
        kind.arrive()
        until(lambda: event.is_fulfilled)

    @omp.task(detach=event, depend=[out(done)])
    def body():
        if moment == "in the body":
            kind.arrive()
        if moment != "before the body":
            event.fulfill_on(request)
        ran.append(1)

    task = body()
    after = omp.task(depend=[in_(done)])(lambda: ran.append(2))()
    if moment == "after it":
        until(lambda: ran)
        assert not task.done()
        comm.Barrier()  # the others have looked, too
        kind.arrive()
    omp.taskwait()
    assert ran == [1, 2]
    assert event.failure is None
    assert after.done()
    kind.check(event.value)


@pytest.mark.parametrize(
    "make", [lambda _: MPI.REQUEST_NULL, lambda _: [], lambda comm: comm.Recv_init(np.zeros(1), 0)]
)
def test_what_is_complete_from_the_beginning(runtime, comm, make):
    """Null requests, none at all, and persistent ones that are not started are complete, as for `MPI_Wait`."""
    request = make(comm)
    event = omp.Event()
    event.fulfill_on(request)
    assert event.is_fulfilled
    if isinstance(request, MPI.Prequest):
        request.Free()


def test_requests_are_null_afterwards(runtime, comm, left, right):
    """What a task is complete with is null, or inactive, and can be waited for."""
    buffer = np.zeros(2)
    request = comm.Irecv(buffer, left, 1)
    comm.Send(np.ones(2), right, 1)
    completed(request)[0].result()
    assert request == MPI.REQUEST_NULL
    request.Wait()


def test_persistent_requests_are_started_again(runtime, comm, left, right):
    """Persistent requests, two in a list, serve an event each time that they are started."""
    buffer, sent = np.zeros(4), np.zeros(4)
    requests = [comm.Recv_init(buffer, left, 2), comm.Send_init(sent, right, 2)]
    for k in range(20):
        sent[...] = 100 * comm.rank + k
        MPI.Prequest.Startall(requests)
        task, event = completed(requests)
        task.result()
        assert (buffer == 100 * left + k).all()
        assert event.value[0].Get_source() == left
    for request in requests:
        request.Free()


def test_values_are_there_when_the_event_is(runtime, comm, left, right):
    """A task that depends on the receive finds the status, and before that there is no value."""
    buffer, seen = np.zeros(2), []
    event = omp.Event()
    omp.task(detach=event, depend=[out(buffer)])(lambda: event.fulfill_on(comm.Irecv(buffer, MPI.ANY_SOURCE, 3)))()
    omp.task(depend=[in_(buffer)])(lambda: seen.append(event.value.Get_source()))()
    assert event.value is None
    comm.Barrier()
    comm.Send(np.ones(2), right, 3)
    omp.taskwait()
    assert seen == [left]


# -- many, and large ones --------------------------------------------------------------------------------
def test_many_open_requests(comm, left, right):
    """10,000 requests are open at a time, a tenth where ranks share a core, and each completes its own event."""
    n = 10_000 if comm.size == 1 else 1_000
    with omp.Runtime("sim:1", check=True):
        buffers, events = np.zeros((n, 1)), [omp.Event() for _ in range(n)]
        for k, event in enumerate(events):
            event.fulfill_on(comm.Irecv(buffers[k], left, k))
        assert progress.n_open == n
        comm.Barrier()
        tasks = [omp.task(detach=event)(int)() for event in events]
        sends = [comm.Isend(np.full(1, float(k)), right, k) for k in range(n)]
        omp.taskwait()
        MPI.Request.Waitall(sends)
        assert (buffers[:, 0] == np.arange(n)).all()
        assert all(task.done() for task in tasks)


def test_data_that_moves_in_small_steps_is_not_napped_over(runtime, comm):
    """An exchange that the library carries out 8 KB a poll takes a fraction of what naps between the polls would."""
    n = 2**20 // comm.size
    sent = np.arange(comm.size * n, dtype=float) + comm.rank
    times_s = []
    for _ in range(4):  # some may meet a busy machine
        received = np.zeros_like(sent)
        comm.Barrier()
        began_s = time.perf_counter()
        completed(comm.Ialltoall(sent, received))[0].result()
        times_s.append(time.perf_counter() - began_s)
        assert (received.reshape(comm.size, n)[:, 0] == comm.rank * n + np.arange(comm.size)).all()
    assert min(times_s) < 1.0, times_s  # 8 MB: 1,024 polls with naps in between took 1.9 s, without them 3 ms


def test_threads_name_requests_side_by_side(runtime, comm, left, right):
    """Eight threads name requests while others complete, and none is lost."""
    n_threads, n = 8, 100 // comm.size
    errors = []

    def work(number):
        try:
            for k in range(n):
                buffer = np.zeros(1)
                task, _ = completed([comm.Irecv(buffer, left, number), comm.Isend(np.full(1, float(k)), right, number)])
                task.result()
                assert buffer[0] == k
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def cpu_share(duration_s):
    """Return which part of a core this process takes while this thread sleeps."""
    before_s = time.process_time()
    time.sleep(duration_s)
    return (time.process_time() - before_s) / duration_s


def test_naps(runtime, comm, left, right):
    """One request that is open takes some percent of a core at most; none takes nothing."""
    until(lambda: cpu_share(0.5) < 0.02)  # the device's own looking ends before
    event = omp.Event()
    event.fulfill_on(comm.Irecv(np.zeros(1), left, 9))
    time.sleep(0.2)
    share = cpu_share(0.5)
    comm.Barrier()
    comm.Send(np.zeros(1), right, 9)
    until(lambda: event.is_fulfilled)
    assert share < 0.4  # 2 to 5 % on this project's machines; a thread that spins takes all


# -- what goes wrong -------------------------------------------------------------------------------------
@tells_of_truncation
def test_a_message_that_is_too_long(runtime, comm, left, right):
    """It fails its task, what depends on that does not run, and what else is open is not touched."""
    buffer, other, ran = np.zeros(1), np.zeros(4), []
    object_ = comm.irecv(source=left, tag=7)
    bad, event = omp.Event(), omp.Event()
    failing = omp.task(detach=bad, depend=[out(buffer)])(bad.fulfill_on)(comm.Irecv(buffer, left, 6))
    dependent = omp.task(depend=[in_(buffer)])(ran.append)(1)
    good = omp.task(detach=event)(event.fulfill_on)([comm.Irecv(other, left, 8), object_])
    sends = [comm.Isend(np.ones(4), right, tag) for tag in (6, 8)]
    comm.send(["an object"], right, 7)
    with pytest.raises(omp.TransportError) as caught:
        failing.result()
    good.result()
    assert event.value[1] == ["an object"]
    assert (other == 1).all()
    error = caught.value
    assert (error.error_class, error.error_name) == (MPI.ERR_TRUNCATE, "MPI_ERR_TRUNCATE")
    assert error.operation == "a request of MPI"
    assert isinstance(error.__cause__, MPI.Exception)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.error_class, copy.error_name, copy.operation) == (
        str(error),
        error.error_class,
        error.error_name,
        error.operation,
    )
    with pytest.raises(omp.DependError):
        dependent.result()
    assert ran == []
    assert bad.failure is error
    assert bad.value is None
    MPI.Request.Waitall(sends)


@tells_of_truncation
@pytest.mark.parametrize("is_persistent", [False, True])
def test_several_fail(runtime, comm, left, right, is_persistent):
    """The first failure of a list is raised, the others are told with it, and all have ended."""
    receive = comm.Recv_init if is_persistent else comm.Irecv
    requests = [receive(np.zeros(1), left, tag) for tag in range(4)]
    if is_persistent:
        MPI.Prequest.Startall(requests)
    event = omp.Event()
    task = omp.task(detach=event)(event.fulfill_on)(requests)
    sends = [comm.Isend(np.ones(2 if tag % 2 else 1), right, tag) for tag in range(4)]
    with pytest.raises(omp.TransportError, match="of 4") as caught:
        task.result()
    assert any(note.startswith("and: ") for note in caught.value.__notes__)
    MPI.Request.Waitall(sends)
    for request in requests if is_persistent else ():
        with suppress(MPI.Exception):  # Open MPI has freed those that have failed
            request.Free()


def test_a_cancelled_request(runtime, comm, left):
    """Its task fails as that of a cancelled future does."""
    request = comm.Irecv(np.zeros(1), left, 11)
    task, event = completed(request)
    request.Cancel()
    with pytest.raises(CancelledError, match="request of MPI was cancelled"):
        task.result()
    assert isinstance(event.failure, CancelledError)


def test_an_object_that_cannot_be_made(runtime, comm, left, right):
    """What the class of a pickled object raises is the failure."""
    task, _ = completed(comm.irecv(source=left, tag=1))
    comm.send(Unloadable(), right, 1)
    with pytest.raises(ZeroDivisionError):
        task.result()


class Unloadable:
    def __reduce__(self):
        return divmod, (1, 0)


def test_a_request_belongs_to_one_event(runtime, comm, left, right):
    """It is refused for a second event and twice in a list; then the second event is open as before."""
    request, second = comm.Irecv(np.zeros(1), left, 1), omp.Event()
    task, _ = completed(request)
    until(lambda: progress.n_open == 1)
    for again in (request, [request], [MPI.REQUEST_NULL, request]):
        with pytest.raises(omp.EventError, match="already used by an event"):
            second.fulfill_on(again)
    other = comm.Irecv(np.zeros(1), left, 2)
    with pytest.raises(omp.EventError, match="already used by an event"):
        second.fulfill_on([other, other])
    assert repr(second) == "<Event open>"
    second.fulfill_on(other)
    comm.Barrier()  # the others have had their errors, too
    for tag in (1, 2):
        comm.Send(np.zeros(1), right, tag)
    task.result()
    until(lambda: second.is_fulfilled)


@pytest.mark.parametrize("odd", [3, None, "a request", MPI.COMM_WORLD])
def test_what_is_no_request(runtime, odd):
    """A list of which one is no request is refused, with a word on that one."""
    event = omp.Event()
    with pytest.raises(omp.EventError, match="not an MPI request"):
        event.fulfill_on([MPI.REQUEST_NULL, odd])
    assert repr(event) == "<Event open>"


def waits_until_told(comm, capfd, lines, go_on):
    """Wait for all tasks in a runtime that tells of waits; once all ranks have told these lines, let them go on."""
    found = []

    def has_told():
        found.append(capfd.readouterr().err)
        return all(line in "".join(found) for line in lines)

    def act():
        try:
            until(has_told)
        finally:  # else all would wait for ever
            comm.Barrier()
            go_on()

    thread = threading.Thread(target=act)
    thread.start()
    omp.taskwait()
    thread.join()
    assert all(line in "".join(found) for line in lines), found


def test_what_waits_says_so(comm, left, right, capfd):
    """Where nothing moves for a while, the story names the request, its age, and how many others are open."""
    lines = ["its event, <Event to be fulfilled by a request of MPI, open for ", "1 open in this process"]
    with omp.Runtime("sim:1", env={"OFFLOAD_HANG_S": "0.2"}):
        completed(comm.Irecv(np.zeros(1), left, 4))
        waits_until_told(comm, capfd, lines, lambda: comm.Send(np.zeros(1), right, 4))


def test_a_forked_child_has_no_mpi(runtime, comm, left, right):
    """In a forked child requests and calls are refused, as MPI is the parent's; the parent's go on."""
    request = comm.Irecv(np.zeros(1), left, 1)
    task, _ = completed(request)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            for refused in (lambda: omp.Event().fulfill_on(MPI.REQUEST_NULL), lambda: mpi.ibarrier(comm=comm)):
                try:
                    refused()
                except omp.UsageError as error:
                    os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read().count("this process was forked") == 2
    os.waitpid(child, 0)
    comm.Send(np.zeros(1), right, 1)
    task.result()
    mpi.ibarrier(comm=comm).result()


def test_what_is_gone_is_not_kept(runtime, comm, left, right):
    """A request that is complete is kept by nobody, nor is its buffer."""
    import weakref

    buffer = np.zeros(1)
    gone = weakref.ref(buffer)
    task, event = completed(comm.Irecv(buffer, left, 1))
    comm.Send(np.zeros(1), right, 1)
    task.result()
    del buffer, task
    until(lambda: gone() is None)
    assert event.is_fulfilled
