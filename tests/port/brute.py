"""Stream programs that are generated, and a model of them by brute force: sets of elements, all paths, all pairs.

A `Program` is text for CuPy, and the operations that it carries out, as CuPy's rules say. `Model` knows nothing of the
porter. It makes a node for each operation, writes down every edge of the rules, and takes the transitive closure.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

HOST = "host"
N = 12  # elements of each array


@dataclass
class Step:
    """An operation: what it does where, and on which elements, as pairs of an array's name and an index."""

    kind: str  # "work", "host", "record", "wait_event", "stream sync", "event sync", "device sync"
    line: int
    stream: str = HOST
    reads: set = field(default_factory=set)
    writes: set = field(default_factory=set)
    host_reads: set = field(default_factory=set)
    event: str = ""
    blocks: str = ""  # the call of a copy that makes the host wait
    result: str = ""  # the host array that a copy fills


class Program:
    """The text of a generated program, its streams and its steps."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = ["import numpy as np", "import cupy as cp", "import cupyx"]
        self.steps = []
        self.is_in_loop = False
        self.streams = {"null": False}  # name: whether it is non-blocking
        self._declare()
        for _ in range(self.random.randint(3, 8)):
            if self.random.random() < 0.5:
                self._loop()
            else:
                self._emit([self._statement()], [{}], "")

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    def _declare(self):
        pick = self.random
        self.device = [f"d{k}" for k in range(pick.randint(1, 3))]
        self.pinned = [f"p{k}" for k in range(pick.randint(0, 2))]
        self.pageable = [f"h{k}" for k in range(pick.randint(1, 2))]
        for k in range(pick.randint(2, 4)):
            self.streams[f"s{k}"] = non_blocking = pick.random() < 0.6
            self.lines.append(f"s{k} = cp.cuda.Stream(non_blocking={non_blocking})")
        self.lines.append("null = cp.cuda.Stream.null")
        self.events = [f"e{k}" for k in range(pick.randint(1, 3))]
        for name in self.events:
            self.lines.append(f"{name} = cp.cuda.Event()")
        for name in self.device:
            self.lines.append(f"{name} = cp.zeros({N})")
            self.steps.append(Step("work", len(self.lines), "null", writes=whole(name)))
        for name in self.pinned:
            self.lines.append(f"{name} = cupyx.zeros_pinned({N})")
        for name in self.pageable:
            self.lines.append(f"{name} = np.zeros({N})")

    # -- statements: pairs of text and a function from the loop's variable to the steps ---------------
    def _loop(self):
        pick = self.random
        count = pick.randint(2, 4)
        self.is_in_loop = True
        body = [self._statement() for _ in range(pick.randint(1, 5))]
        self.is_in_loop = False
        self.lines.append(f"for i in range({count}):")
        self._emit(body, [{"i": i} for i in range(count)], "    ")

    def _emit(self, statements, rounds, indent):
        first = len(self.lines) + 1
        self.lines += [indent + text for text, _ in statements]
        for names in rounds:
            for at, (_, make) in enumerate(statements):
                self.steps += make(first + at, names.get("i", 0))

    def _statement(self):
        kinds = [self._work] * 5 + [self._set] * 2 + [self._get] * 2 + [self._host] * 2
        kinds += [self._record, self._record, self._wait, self._wait, self._sync, self._number]
        return self.random.choice(kinds)()

    def _view(self, name):
        """Return the text of a view, and a function from the loop's variable to its elements."""
        form = self.random.randrange(5)
        if form == 0:
            low = self.random.randrange(N - 1)
            high = self.random.randrange(low + 1, N + 1)
            return f"{name}[{low}:{high}]", lambda i: elements(name, range(low, high))
        if form == 1:
            step, low = self.random.choice([2, 3]), self.random.randrange(2)
            return f"{name}[{low}::{step}]", lambda i: elements(name, range(low, N, step))
        if form == 2:
            at = "i % 3 * 4" if self.is_in_loop else "0"
            return f"{name}[{at}:{at} + 4]", lambda i: elements(name, range(i % 3 * 4, i % 3 * 4 + 4))
        return name, lambda i: whole(name)

    def _stream(self):
        return self.random.choice(list(self.streams))

    def _work(self):
        stream = self._stream()
        (target, written), (source, read) = (
            self._view(self.random.choice(self.device)),
            self._view(self.random.choice(self.device)),
        )
        form = self.random.randrange(3)
        with_stream = f"with {stream}: "
        if form == 0:
            return f"{with_stream}{target} += 1", lambda line, i: [
                Step("work", line, stream, reads=written(i), writes=written(i))
            ]
        if form == 1:
            return f"{with_stream}{target}[...] = 2", lambda line, i: [Step("work", line, stream, writes=written(i))]
        return f"{with_stream}{source}.sum()", lambda line, i: [Step("work", line, stream, reads=read(i))]

    def _set(self):
        stream, name = self._stream(), self.random.choice(self.device)
        host = self.random.choice(self.pinned + self.pageable)
        low = self.random.choice([0, 0, 3])
        is_late, is_strided = host in self.pinned, self.random.random() < 0.3
        count = (N - low) // 2 if is_strided else N - low
        source = f"{host}[{low}:{low + 2 * count}:2]" if is_strided else f"{host}[{low}:]"
        read = elements(host, range(low, low + 2 * count, 2) if is_strided else range(low, N))
        written = elements(name, range(count))

        def make(line, i):
            step = Step("work", line, stream, writes=written)
            if is_late and not is_strided:
                step.reads = read
            else:
                step.host_reads = read
            return [step]

        return f"{name}[:{count}].set({source}, stream={stream})", make

    def _get(self):
        stream, name = self._stream(), self.random.choice(self.device)
        host = self.random.choice(self.pinned + self.pageable)
        blocks = self.random.random() < 0.4
        text, read = self._view(name)
        form = self.random.randrange(2)
        if form == 0:
            text, read = name, lambda i: whole(name)
        size = len(read(0))
        call = f"{text}.get(stream={stream}, out={host}[:{size}], blocking={blocks})"
        if self.random.random() < 0.3:
            call = f"cp.asnumpy({text}, stream={stream}, out={host}[:{size}], blocking={blocks})"
        kind = ("get" if ".get(" in call else "asnumpy") if blocks else ""
        written = elements(host, range(size))
        return call, lambda line, i: [Step("work", line, stream, reads=read(i), writes=written, blocks=kind)]

    def _number(self):
        stream, name = self._stream(), self.random.choice(self.device)
        at = self.random.randrange(N)
        return f"with {stream}: float({name}[{at}])", lambda line, i: [
            Step("work", line, stream, reads={(name, at)}, blocks="float")
        ]

    def _host(self):
        host = self.random.choice(self.pinned + self.pageable)
        text, part = self._view(host)
        if self.random.random() < 0.5:
            return f"{text}[...] = 3", lambda line, i: [Step("host", line, writes=part(i))]
        return f"{text}.sum()", lambda line, i: [Step("host", line, reads=part(i))]

    def _record(self):
        event, stream = self.random.choice(self.events), self._stream()
        text = self.random.choice([f"{event}.record({stream})", f"{stream}.record({event})"])
        return text, lambda line, i: [Step("record", line, stream, event=event)]

    def _wait(self):
        event, stream = self.random.choice(self.events), self._stream()
        return f"{stream}.wait_event({event})", lambda line, i: [Step("wait_event", line, stream, event=event)]

    def _sync(self):
        form = self.random.randrange(4)
        if form == 0:
            event = self.random.choice(self.events)
            return f"{event}.synchronize()", lambda line, i: [Step("event sync", line, event=event)]
        if form == 1:
            text = self.random.choice(["cp.cuda.Device().synchronize()", "cp.cuda.runtime.deviceSynchronize()"])
            return text, lambda line, i: [Step("device sync", line)]
        stream = self._stream()
        return f"{stream}.synchronize()", lambda line, i: [Step("stream sync", line, stream)]


def whole(name):
    """Return all elements of an array."""
    return elements(name, range(N))


def elements(name, indices):
    """Return some elements of an array."""
    return {(name, index) for index in indices}


@dataclass
class Node:
    """A place in the order: work of a stream, an access of the host, or a wait of the host."""

    chain: str
    line: int
    reads: set
    writes: set
    before: set = field(default_factory=set)  # the nodes with an edge to this one


class Model:
    """All that happens before what, in a program without the calls of one line."""

    def __init__(self, program, left_out=None):
        self.streams = program.streams
        self.nodes = []
        self.waits = {}  # by line: pairs of the nodes that a wait is for, and the node after it
        self.events = {}
        for step in program.steps:
            if left_out != (step.line, call_of(step)):
                self._add(step)
        self.closure = []
        for node in self.nodes:
            known = 0
            for other in node.before:
                known |= self.closure[other] | 1 << other
            self.closure.append(known)

    def of(self, chains):
        return {at for at, node in enumerate(self.nodes) if node.chain in chains}

    def _node(self, step, chain, reads=(), writes=(), also=()):
        before = self.of({chain, HOST} if chain != HOST else {HOST}) | set(also)
        self.nodes.append(Node(chain, step.line, set(reads), set(writes), before))
        return len(self.nodes) - 1

    def _null_rule(self, stream):
        if stream == "null":
            return self.of({name for name, non_blocking in self.streams.items() if not non_blocking})
        return set() if self.streams[stream] else self.of({"null"})

    def _add(self, step):
        stream, call = step.stream, call_of(step)
        if step.kind == "host":
            self._node(step, HOST, step.reads, step.writes)
        elif step.kind in {"work", "record", "wait_event"}:
            if step.host_reads:
                self._node(step, HOST, step.host_reads)
            also, waits = self._null_rule(stream), set()
            if step.kind == "wait_event":
                waits = {self.events[step.event]} if step.event in self.events else set()
            node = self._node(step, stream, step.reads, step.writes, also | waits)
            if step.kind == "record":
                self.events[step.event] = node
            if call:
                self.waits.setdefault((step.line, call), []).append((waits, node))
            if step.blocks:
                self._node(step, HOST, also=self.of({stream}))
        else:
            if step.kind == "event sync":
                waits = {self.events[step.event]} if step.event in self.events else set()
            elif step.kind == "device sync":
                waits = self.of(self.streams)
            else:
                waits = self.of({stream}) | (self._null_rule("null") if stream == "null" else set())
            node = self._node(step, HOST, also=waits)
            self.waits.setdefault((step.line, call), []).append((waits, node))

    def conflicts(self):
        """Yield the pairs of nodes that share an element which one of them writes."""
        for second, b in enumerate(self.nodes):
            for first, a in enumerate(self.nodes[:second]):
                if a.writes & (b.reads | b.writes) or a.reads & b.writes:
                    yield first, second

    def races(self):
        """Return, by pair of lines, how many pairs of nodes conflict and are not ordered."""
        counts = {}
        for first, second in self.conflicts():
            if not self.closure[second] >> first & 1:
                lines = self.nodes[first].line, self.nodes[second].line
                counts[lines] = counts.get(lines, 0) + 1
        return counts

    def orders_data(self, line):
        """Tell whether conflicting nodes are work that a call of a line waits for, and a node after the call."""
        through = set()
        for waits, node in self.waits[line]:
            chains = {self.nodes[w].chain for w in waits}
            if "null" in chains:
                chains |= {name for name, non_blocking in self.streams.items() if not non_blocking}
            before = {at for at in range(len(self.nodes)) if any(at == w or self.closure[w] >> at & 1 for w in waits)}
            before = {at for at in before if self.nodes[at].chain in chains}
            after = {at for at in range(len(self.nodes)) if at == node or self.closure[at] >> node & 1}
            through |= {(a, b) for a in before for b in after}
        return any(pair in through for pair in self.conflicts())


def call_of(step):
    """Return the call of a step that waits; ``""`` for another step."""
    if step.kind == "wait_event":
        return "wait_event"
    return "synchronize" if step.kind.endswith("sync") else ""


def redundant(program):
    """Return, by line and call, how often it was called and why it could be left out."""
    model = Model(program)
    total = sum(model.races().values())
    found = {}
    for line in dict.fromkeys((step.line, call_of(step)) for step in program.steps if call_of(step)):
        if sum(Model(program, line).races().values()) == total:
            count = sum((step.line, call_of(step)) == line for step in program.steps)
            found[line] = (count, "implied" if model.orders_data(line) else "no data")
    return found


def edges(program):
    """Return the pairs of lines with a dependence through one element, with its kind."""
    found = set()
    last_write, reads_since = {}, {}
    for step in program.steps:
        read = step.reads | step.host_reads
        for one in read:
            if one in last_write:
                found.add((last_write[one], step.line, "flow"))
        for one in step.writes:
            found |= {(line, step.line, "anti") for line in reads_since.get(one, ())}
            if one in last_write:
                found.add((last_write[one], step.line, "output"))
        for one in step.writes:
            last_write[one] = step.line
            reads_since[one] = set()
        for one in read:
            reads_since.setdefault(one, set()).add(step.line) if one not in step.writes else None
        for one in read & step.writes:
            reads_since[one] = {step.line}
    return found
