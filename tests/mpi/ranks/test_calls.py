"""`offload.mpi` on any number of ranks: each sends to the one on its right, perhaps itself."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import CancelledError

import numpy as np
import pytest
from mpi4py import MPI

import offload as omp
from offload import in_, mpi, out
from tests.mpi.ranks.test_requests import tells_of_truncation, waits_until_told
from tests.patience import until


class BoomError(Exception):
    pass


def boom():
    raise BoomError


# -- what calls do ---------------------------------------------------------------------------------------
def test_messages_follow_their_buffers(runtime, comm, left, right):
    """A send follows what fills its buffer, and what reads a received array follows the receive, in rings of calls."""
    sent, received = np.zeros(4), np.zeros(4)
    for k in range(10):
        omp.task(depend=[out(sent)])(sent.fill)(100 * comm.rank + k)
        mpi.isend(sent, right, 3, comm=comm)
        status = mpi.irecv(received, left, 3, comm=comm)
        seen = omp.task(depend=[in_(received)])(received.tolist)()
        assert seen.result() == [100 * left + k] * 4
        assert status.result().Get_source() == left
    omp.taskwait()


COLLECTIVES = {
    "ibarrier": ((), None),
    "ibcast": (("x",), "x"),
    "igather": (("x", "y", 0), "y"),
    "iscatter": (("y", "x", 0), "x"),
    "iallgather": (("x", "y"), "y"),
    "ialltoall": (("y", "z"), "z"),
    "ireduce": (("x", "w", MPI.SUM, 0), "w"),
    "iallreduce": (("x", "w"), "w"),
    "ireduce_scatter_block": (("y", "x"), "x"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(runtime, comm, name):
    """Each collective operation gives what the blocking one does, and later tasks find it in its buffers."""
    parameters, result = COLLECTIVES[name]

    def arrays():
        n = comm.size
        return {
            "x": np.arange(2.0) + 10 * comm.rank,
            "w": np.zeros(2),
            "y": np.arange(2.0 * n) + 100 * comm.rank,
            "z": np.zeros(2 * n),
        }

    expected, found = arrays(), arrays()
    method = "".join(["I" * (name[0] != "i"), name[1:].capitalize()])
    getattr(comm, method)(*[expected.get(p, p) if isinstance(p, str) else p for p in parameters])
    task = getattr(mpi, name)(*[found.get(p, p) if isinstance(p, str) else p for p in parameters], comm=comm)
    if result is not None:
        seen = omp.task(depend=[in_(found[result])])(found[result].copy)()
        assert (seen.result() == expected[result]).all()
    assert task.result() is None
    omp.taskwait()


def test_buffers_with_counts(runtime, comm):
    """Buffers may be arrays with counts, displacements and datatypes, also through `call`."""
    n = comm.size
    sent, received = np.arange(3.0 * n) + 100 * comm.rank, np.zeros(3 * n)
    counts, displacements = [3] * n, [3 * k for k in range(n)]
    mpi.ialltoallv([sent, (counts, displacements)], [received, (counts, displacements)], comm=comm)
    seen = omp.task(depend=[in_(received)])(received.copy)()
    expected = np.concatenate([np.arange(3.0) + 3 * comm.rank + 100 * k for k in range(n)])
    assert (seen.result() == expected).all()
    types = [MPI.DOUBLE] * n
    nbytes = [24 * k for k in range(n)]
    received[...] = 0
    mpi.call(comm.Ialltoallw, [sent, (counts, nbytes), types], [received, (counts, nbytes), types])
    seen = omp.task(depend=[in_(received)])(received.copy)()
    assert (seen.result() == expected).all()
    total = np.full(2, comm.rank + 1.0)
    mpi.iallreduce(MPI.IN_PLACE, total, comm=comm)
    assert omp.task(depend=[in_(total)])(total.tolist)().result() == [comm.size * (comm.size + 1) / 2] * 2
    omp.taskwait()


def test_pieces_are_under_way_together(runtime, comm, left, right):
    """With ``depend`` of one's own, pieces of one array are received side by side."""
    pieces = np.zeros((4, 2))
    receives = [
        mpi.irecv(pieces[k], left, k, comm=comm, depend=[out(("piece", k))], name=f"piece {k}") for k in range(4)
    ]
    for k in reversed(range(4)):
        mpi.isend(np.full(2, k + 1.0), right, k, comm=comm)
        receives[k].result()
    assert (pieces[:, 0] == [1, 2, 3, 4]).all()
    assert receives[2].name == "piece 2"
    omp.taskwait()


@pytest.mark.parametrize("size", [1, 100_000])
def test_objects(runtime, comm, left, right, size):
    """Pickled objects of any size are results, in the order in which they were sent."""
    received = [mpi.recv_object(left, 5, comm=comm) for _ in range(3)]
    for k in range(3):
        mpi.send_object({"number": k, "from": comm.rank, "much": "x" * size}, right, 5, comm=comm)
    for k, task in enumerate(received):
        assert task.result() == {"number": k, "from": left, "much": "x" * size}
    omp.taskwait()


def test_an_object_and_a_buffer_with_one_tag(runtime, comm, left, right):
    """A receive behind that of an object does not take the object's message."""
    buffer = np.zeros(3)
    thing = mpi.recv_object(left, 5, comm=comm)
    mpi.irecv(buffer, left, 5, comm=comm)
    mpi.send_object("first", right, 5, comm=comm)
    mpi.isend(np.ones(3), right, 5, comm=comm)
    assert thing.result() == "first"
    omp.taskwait()
    assert (buffer == 1).all()


def test_persistent_requests(runtime, comm, left, right):
    """`mpi.start` starts persistent requests when its dependences allow, and is complete with them."""
    sent, received, total = np.zeros(2), np.zeros(2), []
    requests = [comm.Recv_init(received, left, 1), comm.Send_init(sent, right, 1)]
    for k in range(5):
        omp.task(depend=[out(sent)])(sent.fill)(k + comm.rank)
        mpi.start(requests, depend=[in_(sent), out(received)])
        omp.task(depend=[in_(received)])(lambda: total.append(received[0]))()
    omp.taskwait()
    assert total == [k + left for k in range(5)]
    if MPI.Get_version() >= (4, 0):
        requests.append(comm.Barrier_init())
        assert mpi.start(requests[-1]).result() is None
    for request in requests:
        request.Free()


def test_a_graph_that_runs_again_calls_again(runtime, comm, left, right):
    """A `taskgraph` of calls is replayed, its calls in the order in which they were recorded, several at a time."""
    sent, received, total = np.zeros(1), np.zeros(1), np.zeros(1)

    @omp.taskgraph
    def step(sent, received, total):
        omp.task(depend=[omp.inout(sent)])(np.add)(sent, 1, sent)
        mpi.irecv(received, left, 4, comm=comm)
        mpi.isend(sent, right, 4, comm=comm)
        omp.task(depend=[in_(received), omp.inout(total)])(np.add)(total, received, total)
        mpi.iallreduce(received, total, comm=comm)

    for _ in range(6):
        step(sent, received, total)
    omp.taskwait()
    assert sent[0] == received[0] == 6
    assert total[0] == 6 * comm.size


def test_a_recorded_graph(comm, left, right):
    """What is only recorded calls nothing and takes no turn; nodes have MPI's names."""
    with omp.Runtime("sim:1", check=True):
        received = np.zeros(2)
        with omp.record(execute=False) as graph:
            mpi.irecv(received, left, 4, comm=comm)
            mpi.isend(np.ones(2), right, 4, comm=comm, name="the send")
        assert [(node.directive, node.name) for node in graph.tasks] == [
            ("MPI Irecv", "MPI Irecv"),
            ("MPI Isend", "the send"),
        ]
        mpi.irecv(received, left, 4, comm=comm)
        mpi.isend(np.ones(2), right, 4, comm=comm)
        omp.taskwait()
        assert (received == 1).all()


def test_detach(runtime, comm, left, right):
    """`mpi.detach` in a body has the task be complete with a request."""
    received, event = np.zeros(2), omp.Event()

    @omp.task(detach=event, depend=[out(received)])
    def body():
        mpi.detach([comm.Irecv(received, left, 6), comm.Isend(np.full(2, comm.rank + 1.0), right, 6)])

    body()
    assert omp.task(depend=[in_(received)])(received.tolist)().result() == [left + 1] * 2
    omp.taskwait()
    with pytest.raises(omp.UsageError, match="detach=event"):
        mpi.detach(MPI.REQUEST_NULL)


def test_from_two_threads(comm, left, right):
    """Host threads with communicators of their own call side by side."""
    comms, errors = [comm.Dup() for _ in range(3)], []
    with omp.Runtime("sim:1", num_threads=2, check=True):

        def work(number):
            try:
                total = np.zeros(1)
                for k in range(20):
                    mpi.iallreduce(np.full(1, float(k)), total, comm=comms[number])
                    assert omp.task(depend=[in_(total)])(total.tolist)().result() == [k * comm.size]
                omp.taskwait()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    for one in comms:
        one.Free()


# -- order -------------------------------------------------------------------------------------------------
def test_calls_wait_for_their_turn(runtime, comm):
    """Collective operations are issued as encountered, whatever becomes ready first, and hold no worker meanwhile."""
    opened = omp.Event()
    first, second = np.zeros(1), np.zeros(1)
    omp.task(detach=opened, depend=[out(first)])(first.fill)(1)
    mpi.iallreduce(MPI.IN_PLACE, first, comm=comm)
    later = [mpi.iallreduce(np.full(1, 2.0), second, comm=comm) for _ in range(8)]  # more than there are workers
    assert omp.task(lambda: "ran")().result() == "ran"
    assert not any(task.done() for task in later)
    if comm.rank % 2:  # the ranks let go in another order
        opened.fulfill()
        comm.Barrier()
    else:
        comm.Barrier()
        opened.fulfill()
    omp.taskwait()
    assert (first[0], second[0]) == (comm.size, 2 * comm.size)


def test_what_is_left_out_fails_the_rest(runtime, comm, left, right):
    """After a call whose task does not run, later ones on its key fail and name it; others go on, as on a duplicate."""
    token = ("left out",)
    failing = omp.task(depend=[out(token)])(boom)()
    before, received = np.zeros(1), np.zeros(1)
    early = mpi.iallreduce(np.ones(1), before, comm=comm)
    skipped = mpi.ibarrier(comm=comm, depend=[in_(token)])
    later = [mpi.ibarrier(comm=comm), mpi.ibcast(before, comm=comm)]
    message = [mpi.irecv(received, left, 2, comm=comm), mpi.isend(np.ones(1), right, 2, comm=comm)]
    with pytest.raises(BoomError):
        failing.result()
    with pytest.raises(omp.DependError):
        skipped.result()
    for task in (*later, mpi.ibarrier(comm=comm)):
        with pytest.raises(omp.TransportError, match=r"is not issued, since Ibarrier.*was left out") as caught:
            task.result()
        assert caught.value.error_class is None
        assert caught.value.operation.startswith(("Ibarrier", "Ibcast"))
    early.result()
    for task in message:
        task.result()
    other = comm.Dup()
    mpi.ibarrier(comm=other).result()
    other.Free()
    assert (before[0], received[0]) == (comm.size, 1)


def test_a_cancelled_call_is_left_out(comm):
    """A call that a cancelled taskgroup discards is left out as well."""
    with omp.Runtime("sim:1", check=True, env={"OMP_CANCELLATION": "true"}):
        held, token = omp.Event(), ("held",)
        omp.task(detach=held, depend=[out(token)])(int)()
        with omp.taskgroup():
            discarded = mpi.ibarrier(comm=comm, depend=[in_(token)])
            omp.task(omp.cancel)("taskgroup").add_done_callback(lambda _: held.fulfill())
        with pytest.raises(CancelledError):
            discarded.result()
        with pytest.raises(omp.TransportError, match="was left out"):
            mpi.ibarrier(comm=comm).result()
        omp.taskwait()


# -- errors ------------------------------------------------------------------------------------------------
def test_a_rank_that_does_not_exist(runtime, comm):
    """The failure of the task is a `TransportError`, its cause MPI's own."""
    with pytest.raises(omp.TransportError, match="MPI_ERR_RANK") as caught:
        mpi.isend(np.zeros(1), comm.size + 5, 3, comm=comm).result()
    assert caught.value.operation.startswith(f"Isend to {comm.size + 5}, tag 3")
    assert isinstance(caught.value.__cause__, MPI.Exception)


@tells_of_truncation
def test_a_message_that_is_too_long(runtime, comm, left, right):
    """The error names the operation, and what depends on the receive does not run."""
    received = np.zeros(1)
    bad = mpi.irecv(received, left, 7, comm=comm)
    after = omp.task(depend=[in_(received)])(received.sum)()
    mpi.isend(np.ones(5), right, 7, comm=comm)
    with pytest.raises(omp.TransportError, match="MPI_ERR_TRUNCATE") as caught:
        bad.result()
    assert caught.value.operation.startswith(f"Irecv from {left}, tag 7")
    with pytest.raises(omp.DependError):
        after.result()


def overlapping(n):
    return np.lib.stride_tricks.as_strided(np.zeros(1), (n,), (0,))


def read_only(n):
    array = np.zeros(n)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("buffer", "why"),
    [
        (overlapping(3), "elements share memory"),
        (np.lib.stride_tricks.sliding_window_view(np.zeros(5), 3, writeable=True), "elements share memory"),
        (read_only(3), "read-only"),
        (read_only(8)[::2], "read-only"),
        (np.broadcast_to(np.zeros(1), 3), "read-only"),
        (b"abc", "read-only"),
        ([memoryview(b"abcd")[::2], 2, MPI.BYTE], "read-only"),
        (np.zeros(3, object), "Python objects"),
        ([np.zeros(8, object)[::2], 4, MPI.BYTE], "Python objects"),
        (np.zeros(3, "M8[s]"), "no such number type"),
        (np.zeros(3, ">f8"), "no such number type"),
        (np.zeros(6, [("x", "f8")])[::2], "no such number type"),
    ],
)
def test_arrays_that_cannot_be_received(runtime, comm, left, right, buffer, why):
    """Each is an error at the call, which names the argument, and later calls do what they do."""
    for refused in (
        lambda: mpi.irecv(buffer, comm.rank, 1, comm=comm),
        lambda: mpi.irecv(buf=buffer, source=comm.rank, comm=comm, depend=[]),
        lambda: mpi.call(comm.Irecv, buffer, comm.rank),
    ):
        with pytest.raises(omp.ClauseError, match=f"^MPI Irecv: buf .*{why}"):
            refused()
    with pytest.raises(omp.ClauseError, match=f"^MPI Iallreduce: recvbuf .*{why}"):
        mpi.iallreduce(np.zeros(3), buffer, comm=comm)
    with pytest.raises(omp.ClauseError, match=f"^MPI Iscatter: recvbuf .*{why}"):
        mpi.iscatter(np.zeros(3), buffer, comm=comm)
    received = np.zeros((3, 3))
    mpi.irecv(received[:, 1], left, 1, comm=comm)
    mpi.isend(read_only(6)[::2], right, 1, comm=comm)
    mpi.isend(overlapping(3), right, 2, comm=comm)
    mpi.irecv(received[::-1, 2], left, 2, comm=comm)
    mpi.iallreduce(received[0], received[1], comm=comm)
    omp.taskwait()


def test_buffers_of_one_rank(runtime, comm):
    """A buffer of the root alone may be anything on the other ranks, and the root of a broadcast only reads."""
    is_root = comm.rank == comm.size - 1
    root, n = comm.size - 1, comm.size
    frozen = read_only(3)
    mpi.ibcast(frozen if is_root else np.ones(3), root, comm=comm)
    mpi.ireduce(np.ones(6)[::2], np.zeros(3) if is_root else frozen, MPI.SUM, root, comm=comm)
    for nothing in (None, overlapping(3), read_only(3)):
        mpi.igather(np.ones(6)[::2], np.zeros(3 * n) if is_root else nothing, root, comm=comm)
        mpi.iscatter(np.zeros(3 * n) if is_root else nothing, np.ones(6)[::2], root, comm=comm)
    mpi.irecv(frozen, MPI.PROC_NULL, comm=comm)
    mpi.irecv(None, MPI.PROC_NULL, comm=comm)
    if not is_root:
        with pytest.raises(omp.ClauseError, match=r"^MPI Ibcast: buf .*read-only"):
            mpi.ibcast(frozen, root, comm=comm)
    else:
        with pytest.raises(omp.ClauseError, match=r"^MPI Igather: recvbuf .*read-only"):
            mpi.igather(np.ones(3), read_only(3 * n), root, comm=comm)
        with pytest.raises(omp.ClauseError, match=r"^MPI Iscatter: sendbuf is None"):
            mpi.iscatter(None, np.ones(3), root, comm=comm)
    omp.taskwait()


def test_orders_of_memory(runtime, comm, left, right):
    """Arrays are sent and received in C's order; the datatype of a program describes memory, in any order."""
    a, received, same = np.arange(12.0).reshape(3, 4) + comm.rank, np.zeros((4, 3)), np.zeros((3, 4), order="F")
    mpi.irecv(received, left, 1, comm=comm)
    mpi.isend(a.T, right, 1, comm=comm)
    mpi.irecv(same, left, 2, comm=comm)
    mpi.isend(a, right, 2, comm=comm)
    omp.taskwait()
    expected = a - comm.rank + left
    assert (received == expected.T).all()
    assert (same == expected).all()
    row = MPI.DOUBLE.Create_vector(4, 1, 3).Commit()
    fortran, line = np.asfortranarray(a), np.zeros(4)
    mpi.irecv(line, left, 3, comm=comm)
    mpi.isend([fortran, 1, row], right, 3, comm=comm)
    omp.taskwait()
    assert (line == expected[0]).all()
    row.Free()


def test_views_of_other_methods(comm):
    """A method whose buffers are not known gets no view that it cannot take; the error comes at the call."""
    with omp.Runtime("sim:1", check=True):
        window = MPI.Win.Allocate(80, 8, comm=comm)
        window.Lock_all()
        with pytest.raises(omp.ClauseError, match=r"^MPI Rput: argument 0 .*contiguous"):
            mpi.call(window.Rput, np.zeros(8)[::2], comm.rank, depend=[])
        mpi.call(window.Rput, np.zeros(8), comm.rank, depend=[]).result()
        window.Unlock_all()
        window.Free()
        assert mpi.call(lambda view: MPI.REQUEST_NULL, np.zeros(8)[::2], depend=[]).result() is None


WRONG = {
    "comm": [3, "world", MPI.COMM_WORLD.Get_group()],
    "dest": ["x", None, 1.5, [0]],
    "source": ["x", None, 0.0],
    "root": ["x", None, (0,)],
    "tag": [None, "x", 2.5],
    "op": [None, 3, "sum", sum],
    "recvcounts": [3, "x", [1.5], ["a"]],
    "sendbuf": [3.5, "text", [], [np.zeros(3)], {}, object()],
    "recvbuf": [None, 3.5, "text", [], [None], {1: 2}],
    "buf": [None, 3.5, "text", (), (1.0, 2.0), object()],
    "nothing": [3],
    "name": [3],
    "priority": ["x", None, 1.5],
    "depend": [3, [3]],
}
"""Of each parameter values of a wrong type."""

RIGHT = {
    "isend": {"buf": np.zeros(3), "dest": 0, "tag": 1},
    "issend": {"buf": np.zeros(3), "dest": 0, "tag": 1},
    "irecv": {"buf": np.zeros(3), "source": 0, "tag": 1},
    "ibarrier": {},
    "ibcast": {"buf": np.zeros(3), "root": 0},
    "igather": {"sendbuf": np.zeros(3), "recvbuf": np.zeros(3), "root": 0},
    "iscatterv": {"sendbuf": np.zeros(3), "recvbuf": np.zeros(3), "root": 0},
    "iallreduce": {"sendbuf": np.zeros(3), "recvbuf": np.zeros(3), "op": MPI.SUM},
    "ireduce": {"sendbuf": np.zeros(3), "recvbuf": np.zeros(3), "op": MPI.SUM, "root": 0},
    "ireduce_scatter": {"sendbuf": np.zeros(3), "recvbuf": np.zeros(3), "recvcounts": [3], "op": MPI.SUM},
    "ialltoall": {"sendbuf": np.zeros(3), "recvbuf": np.zeros(3)},
    "ialltoallv": {"sendbuf": np.zeros(3), "recvbuf": np.zeros(3)},
    "recv_object": {"source": 0, "tag": 1},
    "send_object": {"obj": "x", "dest": 0, "tag": 1},
}


@pytest.mark.parametrize("construct", RIGHT)
def test_types_of_arguments(construct, comm):
    """An argument of a wrong type is an error at the call that names it, and takes no turn."""
    if comm.size > 1:
        return  # what each rank does by itself
    right = RIGHT[construct]
    with omp.Runtime("sim:1", check=True):
        for parameter in (*right, "comm", "nothing", "name", "priority", "depend"):
            for value in WRONG.get(parameter, ()):
                if construct == "iscatterv" and parameter == "recvbuf" and value is None:
                    continue  # MPI's IN_PLACE
                error = {"depend": omp.DependError, "nothing": (omp.ClauseError, TypeError)}.get(
                    parameter, omp.ClauseError
                )
                with pytest.raises(error, match=parameter if parameter != "depend" else None):
                    getattr(mpi, construct)(**{"comm": comm, **right, parameter: value})
        for parameter in right.keys() - {"root", "tag", "op", "source", "recvcounts"}:
            with pytest.raises((omp.ClauseError, TypeError), match=parameter):
                getattr(mpi, construct)(comm=comm, **{name: right[name] for name in right.keys() - {parameter}})
        with pytest.raises((omp.ClauseError, TypeError), match="argument"):
            getattr(mpi, construct)(*right.values(), *[0] * 8, comm=comm)
        with pytest.raises(omp.ClauseError, match=r"give .array, .counts, displacements., datatypes"):
            mpi.ialltoallw(np.zeros(3), [np.zeros(3), [MPI.DOUBLE]], comm=comm)
        with pytest.raises(omp.ClauseError, match="is not callable"):
            mpi.call(3)
        mpi.ibarrier(comm=comm).result()
        mpi.irecv(np.zeros(1), 0, 1, comm=comm)
        mpi.isend(np.zeros(1), 0, 1, comm=comm)
        omp.taskwait()


def test_arguments_that_are_wrong(runtime, comm):
    """Each is an error at the call, which generates nothing."""
    freed = comm.Dup()
    freed.Free()
    with pytest.raises(omp.UsageError, match="null, or has been freed"):
        mpi.ibarrier(comm=MPI.COMM_NULL)
    with pytest.raises(omp.UsageError, match="null, or has been freed"):
        mpi.isend(np.zeros(1), 0, comm=freed)
    with pytest.raises(omp.ClauseError, match="give depend="):
        mpi.call(print, 3)
    with pytest.raises(omp.ClauseError, match="give depend="):
        mpi.isend(3.5, 0, comm=comm)
    with pytest.raises(omp.ClauseError, match="persistent"):
        mpi.start([MPI.REQUEST_NULL])
    with pytest.raises(omp.ClauseError, match="persistent"):
        mpi.start([])
    with pytest.raises(omp.DependError):
        mpi.ibarrier(comm=comm, depend=[3])
    with pytest.raises(omp.ClauseError, match="priority"):
        mpi.ibarrier(comm=comm, priority=-1)
    with pytest.raises(omp.ClauseError, match="dest is missing"):
        mpi.isend(np.zeros(1), comm=comm)
    with pytest.raises(omp.UsageError):
        omp.target()(lambda: mpi.ibarrier(comm=comm))()
    omp.taskwait()
    mpi.ibarrier(comm=comm).result()  # no turn was taken


def test_a_method_that_gives_no_request(runtime, comm):
    """It fails the task."""
    with pytest.raises(omp.UsageError, match="returned 3"):
        mpi.call(lambda: 3, depend=[]).result()


def test_empty_buffers_and_oneself(runtime, comm):
    """Messages without elements, and to oneself, are messages."""
    empty, received = np.zeros(0), np.zeros(3)
    mpi.irecv(empty, comm.rank, 1, comm=comm)
    mpi.irecv(received, comm.rank, 2, comm=comm)
    mpi.isend(empty, comm.rank, 1, comm=comm)
    mpi.isend(np.ones(3), comm.rank, 2, comm=comm)
    omp.taskwait()
    assert (received == 1).all()


def test_what_waits_says_so(comm, left, right, capfd):
    """The story of a wait names the operation, its partner and communicator, and what waits for its turn."""
    comm.name = "the ring"
    with omp.Runtime("sim:1", env={"OFFLOAD_HANG_S": "0.2"}):
        mpi.irecv(np.zeros(1), left, 4, comm=comm)
        held = omp.Event()
        omp.task(detach=held, depend=[out(("held",))])(int)()
        mpi.ibarrier(comm=comm, depend=[in_(("held",))], name="late")
        mpi.ibarrier(comm=comm)
        lines = [
            f"Irecv from {left}, tag 4, on the ring, open for ",
            "Ibarrier on the ring, which is to be issued after Ibarrier on the ring",
        ]
        waits_until_told(comm, capfd, lines, lambda: (held.fulfill(), comm.Send(np.zeros(1), right, 4)))


def test_nothing_is_kept(runtime, comm, left, right):
    """A call that is over keeps neither buffers nor tasks, though the communicator remembers turns."""
    buffer = np.zeros(1)
    gone = weakref.ref(buffer)
    task = mpi.irecv(buffer, left, 1, comm=comm)
    mpi.isend(np.zeros(1), right, 1, comm=comm)
    task.result()
    kept = weakref.ref(task)
    omp.taskwait()
    del buffer, task
    until(lambda: gone() is None and kept() is None)
