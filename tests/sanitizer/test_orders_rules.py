"""The order of generated programs is exactly the order that they ask for, under any schedule."""

import random

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.profiles import few
from tests.sanitizer.order import sanitized

TYPES = {"in": omp.in_, "out": omp.out, "inout": omp.inout, "set": omp.inoutset, "mutex": omp.mutexinoutset}
JOINED = {"in", "set", "mutex"}
KINDS = ["access", "task", "task", "task", "target", "wait", "undeferred", "detached", "result", *["wait for"] * 2]

LOCATIONS = [("at", 1), ("at", 2), ("at", 3)]


# -- programs --------------------------------------------------------------------------------------
class Maker:
    """Makes a random program: nested lists of statements, each access with a number of its own."""

    def __init__(self, rng, kinds=KINDS):
        self.rng = rng
        self.kinds = kinds
        self.n_accesses = 0

    def access(self):
        self.n_accesses += 1
        return ("access", self.n_accesses - 1)

    def depend(self):
        return [(self.rng.choice(list(TYPES)), self.rng.choice(LOCATIONS)) for _ in range(self.rng.randrange(3))]

    def body(self, depth):
        found = [self.access()]
        for _ in range(self.rng.randrange(6 - 2 * depth)):
            found.append(self.statement(depth))
            if self.rng.random() < 0.4:
                found.append(self.access())
        return found

    def statement(self, depth):
        kind = self.rng.choice(self.kinds + ["group"] * (depth < 2))
        match kind:
            case "access":
                return self.access()
            case "task" | "undeferred":
                return (kind, self.depend(), self.body(depth + 1) if depth < 2 else [self.access()])
            case "target":
                return (kind, self.depend(), [self.access()])
            case "detached":
                return (kind, self.depend(), [self.access()], [self.access()])
            case "group":
                return (kind, self.body(depth + 1))
            case "wait for":
                return (kind, [(one, where) for one, where in self.depend() if one != "mutex"])
            case _:
                return (kind, self.rng.random())


# -- the model -------------------------------------------------------------------------------------
class Model:
    """The order that a program asks for: a graph of points."""

    def __init__(self):
        self.before = []  # of each point
        self.accesses = {}

    def point(self, *before):
        self.before.append(set(before))
        return len(self.before) - 1

    def run(self, statements, here, groups):
        """Follow a region from a point on, and return its last point."""
        children = []  # dependences and end
        return self._block(statements, here, groups, children)

    def _block(self, statements, here, groups, children):
        for statement in statements:
            match statement:
                case ("access", number):
                    here = self.accesses[number] = self.point(here)
                case ("task" | "target" | "undeferred" | "detached" as kind, depend, body, *between):
                    begin = self.point(here, *[end for other, end in children if _conflict(other, depend)])
                    end = self.point(self.run(body, begin, groups))
                    children.append((depend, end))
                    for group in groups:
                        group.append(end)
                    if kind == "undeferred":
                        here = self.point(here, end)
                    if between:
                        here = self._block(between[0], self.point(here), groups, children)
                        self.before[end].add(here)
                        here = self.point(here)
                case ("wait", _):
                    here = self.point(here, *[end for _, end in children])
                case ("wait for", depend):
                    if depend:
                        here = self.point(here, *[end for other, end in children if _conflict(other, depend)])
                case ("result", share):
                    if children:
                        here = self.point(here, children[int(share * len(children))][1])
                case ("group", inner):
                    members = []
                    here = self._block(inner, here, [members], children)
                    here = self.point(here, *members)
        return here

    def closure(self):
        """Return the pairs of accesses that are in order."""
        known = {}

        def past(point):
            if point not in known:
                known[point] = set().union(*[{other} | past(other) for other in self.before[point]])
            return known[point]

        return {
            (one, other)
            for one, first in self.accesses.items()
            for other, second in self.accesses.items()
            if first in past(second)
        }


def _conflict(first, second):
    return any(
        where == there and not (kind == other and kind in JOINED) for kind, where in first for other, there in second
    )


# -- running ---------------------------------------------------------------------------------------
def _run(noted, statements, stretches):
    """Run a region as a program would."""

    def block(statements, tasks):
        for statement in statements:
            match statement:
                case ("access", number):
                    stretches[number] = noted.orders.here()
                case ("task", depend, body):
                    tasks.append(omp.task(depend=_clauses(depend))(lambda body=body: region(body))())
                case ("undeferred", depend, body):
                    tasks.append(omp.task(depend=_clauses(depend), if_=False)(lambda body=body: region(body))())
                case ("target", depend, body):
                    function = omp.target(nowait=True, depend=_clauses(depend))(lambda _, body=body: region(body))
                    tasks.append(function(np.zeros(2)))
                case ("detached", depend, body, between):
                    event = omp.Event()
                    function = omp.task(depend=_clauses(depend), detach=event)
                    tasks.append(function(lambda body=body: region(body))())
                    block(between, [])
                    event.fulfill()
                case ("wait", _):
                    omp.taskwait()
                case ("wait for", depend):
                    if depend:
                        omp.taskwait(depend=_clauses(depend))
                case ("result", share):
                    if tasks:
                        tasks[int(share * len(tasks))].result()
                case ("group", inner):
                    with omp.taskgroup():
                        block(inner, tasks)

    def region(statements):
        block(statements, [])

    region(statements)


def _clauses(depend):
    return [TYPES[kind](where) for kind, where in depend]


def _check(order, stretches, expected, program):
    """Check that stretches of accesses are in order exactly as expected."""
    for one, first in stretches.items():
        for other, second in stretches.items():
            if one == other:
                continue
            if first == second:
                assert (one, other) in expected or (other, one) in expected, (one, other, program)
            else:
                assert order.is_before(first, second) == ((one, other) in expected), (one, other, program)


@pytest.mark.parametrize("seed", few(20, range(150)))
def test_exactly_the_order_that_is_asked_for(seed):
    """Two accesses are in order exactly if the program has asked for it, whatever the schedule was."""
    rng = random.Random(seed)
    maker = Maker(rng)
    program = [statement for _ in range(3) for statement in maker.body(0)]
    model = Model()
    model.run(program, model.point(), [])
    stretches = {}
    with sanitized("sim:1", seed=rng.choice([None, seed]), num_threads=rng.choice([0, 1, 3])) as noted:
        _run(noted, program, stretches)
        omp.barrier()
        assert len(stretches) == maker.n_accesses
        _check(noted.orders.order, stretches, model.closure(), program)


@pytest.mark.parametrize("kind", ["taskgraph", "computed"])
@pytest.mark.parametrize("seed", few(10, range(70)))
def test_graphs_that_run_again(seed, kind):
    """A taskgraph that runs again, and a graph that is computed again, have the order of the program."""
    rng = random.Random(seed)
    left_out = {"access", "detached"} if kind == "taskgraph" else {"access", "detached", "result", "undeferred"}
    maker = Maker(rng, [one for one in KINDS if one not in left_out])
    program = [statement for _ in range(3) for statement in maker.body(0) if statement[0] != "access"]
    model = Model()
    model.run(program, model.point(), [])
    expected, wanted, stretches = model.closure(), in_tasks(program), {}
    with sanitized("sim:1", seed=rng.choice([None, seed]), num_threads=rng.choice([0, 1, 3])) as noted:
        order = noted.orders.order
        if kind == "taskgraph":
            region = omp.taskgraph(lambda: _run(noted, program, stretches))
        else:
            with omp.record(execute=False) as graph:
                _run(noted, program, stretches)
            region = graph.compute
        before = noted.orders.here()
        for _ in range(3):
            stretches.clear()
            region()
            after = noted.orders.here()
            found = {number: stretch for number, stretch in stretches.items() if number in wanted}
            assert set(found) == wanted
            _check(order, found, expected, program)
            assert all(order.is_before(before, stretch) for stretch in found.values())
            assert all(order.is_before(stretch, after) for stretch in found.values())
            before = after


def in_tasks(program):
    """Return the numbers of the accesses that tasks make."""
    found = set()
    for statement in program:
        match statement:
            case ("task" | "target" | "undeferred", _, body):
                found |= numbers(body)
            case ("group", inner):
                found |= in_tasks(inner)
    return found


def numbers(statements):
    """Return the numbers of all accesses in statements."""
    found = set()
    for statement in statements:
        match statement:
            case ("access", number):
                found.add(number)
            case ("group", inner):
                found |= numbers(inner)
            case (_, _, body, *_):
                found |= numbers(body)
    return found


# -- streams and queues ----------------------------------------------------------------------------
class Streams:
    """Runs random steps on streams, queues and events, and follows in a model what they ask for."""

    def __init__(self, rng, noted):
        self.rng = rng
        self.noted = noted
        self.model = Model()
        self.stretches = {}
        self.here = self.model.point()
        self.device = omp.devices()[0]
        self.streams = [self.device.new_stream() for _ in range(3)]
        self.last = dict.fromkeys(self.streams)
        self.events = {}
        self.queues = {1: None, 2: None}
        self.exposed = {}
        self.tasks = []
        self.n_accesses = 0

    def access(self):
        """Return a function that notes its stretch, and its number."""
        number, self.n_accesses = self.n_accesses, self.n_accesses + 1

        def note(*_):
            self.stretches[number] = self.noted.orders.here()

        return note, number

    def put(self, number, *before):
        """Return the point of an access after some points."""
        point = self.model.accesses[number] = self.model.point(*[one for one in before if one is not None])
        return point

    def step(self):
        getattr(self, self.rng.choice([name for name in dir(self) if name.startswith("do_")]))()

    def do_host(self):
        note, number = self.access()
        note()
        self.here = self.put(number, self.here)

    def do_launch(self):
        stream = self.rng.choice(self.streams)
        note, number = self.access()
        stream.launch(note)
        self.last[stream] = self.put(number, self.last[stream], self.here)

    def do_record(self):
        stream = self.rng.choice(self.streams)
        event = self.rng.choice([None, *self.events])
        self.events[stream.record(event)] = self.last[stream]

    def do_wait_event(self):
        if self.events:
            stream, event = self.rng.choice(self.streams), self.rng.choice(list(self.events))
            stream.wait_event(event)
            before = [one for one in (self.last[stream], self.events[event]) if one is not None]
            self.last[stream] = self.model.point(*before)

    def do_synchronize(self):
        stream = self.rng.choice(self.streams)
        stream.synchronize()
        if self.last[stream] is not None:
            self.here = self.model.point(self.here, self.last[stream])

    def do_synchronize_event(self):
        if self.events:
            event = self.rng.choice(list(self.events))
            event.synchronize()
            if self.events[event] is not None:
                self.here = self.model.point(self.here, self.events[event])

    def do_task(self):
        note, number = self.access()
        self.tasks.append((omp.target(nowait=True)(note)(np.zeros(2)), self.put(number, self.here)))

    def do_wait_on(self):
        if self.tasks:
            stream, (task, end) = self.rng.choice(self.streams), self.rng.choice(self.tasks)
            task.wait_on(stream)
            self.last[stream] = self.model.point(
                *[one for one in (self.last[stream], end, self.here) if one is not None]
            )

    def do_result(self):
        if self.tasks:
            task, end = self.rng.choice(self.tasks)
            task.result()
            self.here = self.model.point(self.here, end)

    def do_fulfil_on(self):
        stream, event = self.rng.choice(self.streams), omp.Event()
        note, number = self.access()
        event.fulfill_on(stream)
        task = omp.task(detach=event)(note)()
        end = self.model.point(*[one for one in (self.put(number, self.here), self.last[stream]) if one is not None])
        self.tasks.append((task, end))

    def do_queue(self):
        queue = self.rng.choice(list(self.queues))
        note, number = self.access()
        acc.parallel(async_=queue)(note)(np.zeros(2))
        self.queues[queue] = self.put(number, self.here, self.queues[queue])

    def do_queue_stream(self):
        queue = self.rng.choice(list(self.queues))
        note, number = self.access()
        acc.get_cuda_stream(queue).launch(note)
        self.queues[queue] = self.put(number, self.here, self.queues[queue])

    def do_wait(self):
        queue = self.rng.choice(list(self.queues))
        acc.wait(queue)
        if self.queues[queue] is not None:
            self.here = self.model.point(self.here, self.queues[queue])

    def do_wait_async(self):
        one, other = self.rng.sample(list(self.queues), 2)
        acc.wait_async(one, other)
        before = [point for point in (self.queues[one], self.queues[other], self.here) if point is not None]
        self.queues[other] = self.model.point(*before)


@pytest.mark.parametrize("seed", few(20, range(120)))
def test_streams_and_queues(seed):
    """Work on streams and queues is in order exactly as calls and events say."""
    rng = random.Random(seed)
    with sanitized("sim:1", seed=rng.choice([None, seed])) as noted:
        streams = Streams(rng, noted)
        for _ in range(25):
            streams.step()
        acc.wait_all()
        omp.taskwait()
        streams.device.synchronize()
        assert len(streams.stretches) == streams.n_accesses
        _check(noted.orders.order, streams.stretches, streams.model.closure(), seed)
