"""Who runs, and in which order: threads, tasks, dependences, waits, groups and events of the oracle.

A task runs at once when it is generated. Its node is after its generating code, and after all earlier siblings whose
dependences conflict with its own, compared pair by pair.
"""

from __future__ import annotations

import inspect
import threading
from contextlib import contextmanager

from benchmarks.sanitizer.oracle import recording
from benchmarks.sanitizer.oracle.arrays import Array

SETS = {"mutexinoutset", "inoutset"}


class Actor:
    """Code that runs in order: a host thread, a task, or an operation on a stream."""

    is_host_code = is_undeferred = is_left_on_stream = is_queued = False
    line = None
    """The line of a decorated function, which stands for the copies of its constructs."""

    def __init__(self, engine, parent):
        self.engine, self.parent = engine, parent
        self.root = self if parent is None else parent.root
        self.node = engine.recorder.node(*([] if parent is None else [parent.fork()]))
        self.children, self.items = [], []
        self.group = None if parent is None else parent.group
        self.stream = self.own_stream = None
        self.default_device = 0 if parent is None else parent.default_device
        self.device = None

    def fork(self):
        """Return the node up to here, and go on with a new one."""
        before = self.node
        self.node = self.engine.recorder.node(before)
        return before

    def join(self, *nodes):
        """Go on after these nodes."""
        self.node = self.engine.recorder.node(self.node, *nodes)

    def ancestors(self):
        """Return the actors that generated this one."""
        found, at = [], self.parent
        while at is not None:
            found.append(at)
            at = at.parent
        return found

    def sets(self):
        """Return the items of the sets that it is a member of, of itself and the tasks that it is part of."""
        return [(kind, item) for kind, item in self.items if kind in SETS]

    def is_apart(self, other):
        """Tell whether nobody compares the two: code of two threads, or members of one set."""
        if self.root is not other.root and (self.is_host_code or other.is_host_code):
            return True
        mine, theirs = self.sets(), other.sets()
        return any(kind == its and overlap(a, b) for kind, a in mine for its, b in theirs)


class Thread(Actor):
    """The code of a host thread."""

    is_host_code = True


class Task(Actor):
    """A task: its body, its dependences, and its completion."""

    def __init__(self, engine, parent, directive, items=(), event=None, *, undeferred=False, queued=False):
        super().__init__(engine, parent)
        recorder = engine.recorder
        self.directive, self.event = directive, event
        self.is_undeferred, self.is_queued = undeferred, queued
        self.items = engine.evaluated(items)
        self.end = recorder.node()
        self.value = None
        for other in parent.children:
            if conflict(other.items, self.items):
                recorder.edge(other.end, self.node)
        for _, item in self.items:
            if isinstance(item, (Task, Event)):
                recorder.edge(item.end, self.node)
        if event is not None:
            if event.task is not None:
                raise RuntimeError("an event of two tasks")
            event.task = self
            recorder.edge(event.end, self.end)
        parent.children.append(self)
        engine.tasks.append(self)
        if self.group is not None:
            self.group.add(self)

    def run(self, body, *args, **kwargs):
        """Run the body, and complete the task as far as that does."""
        with self.engine.acting(self):
            value = body(*args, **kwargs)
            if inspect.iscoroutine(value):
                value = driven(value)
        self.value = value
        self.finish()
        return self

    def finish(self):
        """End the body."""
        self.engine.recorder.edge(self.node, self.end)

    # -- the public face

    def result(self, timeout=None):
        self.engine.actor().join(self.end)
        return self.value

    def exception(self, timeout=None):
        self.engine.actor().join(self.end)

    def done(self):
        is_done = self.event is None or self.event.is_fulfilled
        if is_done:
            self.engine.actor().join(self.end)
        return is_done

    def wait_on(self, stream):
        stream.follow(self.end)

    def __await__(self):
        yield from ()
        return self.result()


def driven(coroutine):
    """Run a coroutine to its end; it awaits tasks and turns of the loop only."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration as stop:
        return stop.value


class Event:
    """An event that a task completes with."""

    def __init__(self, engine):
        self.engine, self.task = engine, None
        self.end = engine.recorder.node()
        self.is_fulfilled = False

    def fulfill(self):
        self.engine.recorder.edge(self.engine.actor().fork(), self.end)
        self.is_fulfilled = True

    def fulfill_on(self, source):
        """Follow a stream, or a future that a thread of the host completes."""
        if hasattr(source, "tail"):
            self.engine.recorder.edge(source.tail, self.end)
        else:
            source.result()
            for thread in list(self.engine.threads.values()):
                self.engine.recorder.edge(thread.fork(), self.end)
        self.is_fulfilled = True


class Stream:
    """A stream, or an async queue: a chain of nodes."""

    def __init__(self, engine, device=0):
        self.engine, self.device = engine, device
        self.tail = engine.recorder.node()

    def follow(self, *nodes):
        """Put later work after these nodes."""
        self.tail = self.engine.recorder.node(self.tail, *nodes)

    def launch(self, function, *args):
        """Carry out work that the code which runs enqueues here."""
        launcher = self.engine.actor()
        if launcher.own_stream is self:  # in a region: part of it
            function(*args)
            return
        work = Actor(self.engine, launcher)
        work.is_left_on_stream = isinstance(launcher, Task)
        work.is_host_code = isinstance(launcher, Thread)
        self.engine.recorder.edge(self.tail, work.node)
        with self.engine.acting(work):
            function(*args)
        self.tail = work.node

    def launch_host_func(self, function, arg):
        self.launch(function, arg)

    def record(self, event=None):
        mark = Mark() if event is None else event
        mark.node = self.tail
        return mark

    def wait_event(self, mark):
        if mark.node is not None:
            self.follow(mark.node)

    def synchronize(self):
        self.engine.actor().join(self.tail)


class Mark:
    """A recorded event of a stream."""

    node = None


class Group:
    """The tasks of a `taskgroup`, with those of groups inside."""

    def __init__(self, outer, reduction):
        self.outer, self.tasks = outer, []
        self.private = []
        self.reduction = reduction or {}

    def add(self, task):
        self.tasks.append(task)
        if self.outer is not None:
            self.outer.add(task)


def conflict(earlier, later):
    """Tell whether dependences order a task after an earlier sibling."""
    return any(
        not (a == b == "in") and not (a == b and a in SETS) and overlap(one, other)
        for a, one in earlier
        for b, other in later
        if not isinstance(one, (Task, Event)) and not isinstance(other, (Task, Event))
    )


ALL = object()
"""All memory."""


def overlap(one, other):
    """Tell whether two items share a byte, or are equal locations."""
    if one is ALL or other is ALL:
        return True
    if isinstance(one, recording.Bytes) and isinstance(other, recording.Bytes):
        return one.common(other) is not None
    if isinstance(one, recording.Bytes) or isinstance(other, recording.Bytes):
        return False
    return one == other


class Engine:
    """Everything that a run has one of."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.threads, self.tasks, self.streams = {}, [], {}
        self.local = threading.local()
        self.mappers = []
        self.recording = None
        self.orders = []

    def actor(self):
        """Return the code that runs on this thread."""
        stack = getattr(self.local, "stack", None)
        if stack:
            return stack[-1]
        ident = threading.get_ident()
        if ident not in self.threads:
            self.threads[ident] = Thread(self, None)
        return self.threads[ident]

    @contextmanager
    def acting(self, actor):
        """Let an actor run."""
        stack = self.local.__dict__.setdefault("stack", [])
        stack.append(actor)
        try:
            yield actor
        finally:
            stack.pop()

    def stream(self, queue, device):
        """Return the stream of a queue number."""
        if (device, queue) not in self.streams:
            self.streams[device, queue] = Stream(self, device)
        return self.streams[device, queue]

    def evaluated(self, items):
        """Return dependences as pairs of a type, and bytes or a location."""
        return [(kind, part) for kind, item in items for part in self.parts(item)]

    def parts(self, item):
        """Return the storage, the locations or the completions that an item of `depend` stands for."""
        if isinstance(item, Array):
            return [item.bytes] if item.size else []
        for cls, mapper in self.mappers:
            if isinstance(item, cls):
                return [array.bytes for _, array, _ in mapped_by(mapper, item)]
        return [item]

    # -- waits -------------------------------------------------------------------------------

    def taskwait(self, items=None):
        """Wait for the children of the code that runs, or for those that items name."""
        actor = self.actor()
        wanted = None if items is None else self.evaluated(items)
        ends = [c.end for c in actor.children if wanted is None or conflict(c.items, wanted)]
        ends += [item.end for _, item in wanted or () if isinstance(item, (Task, Event))]
        actor.join(*ends)

    def barrier(self):
        """Wait for all tasks."""
        self.actor().join(*(task.end for task in self.tasks))

    @contextmanager
    def group(self, reduction=None, *, waits=True):
        """Wait for the tasks of a block, and for their descendants."""
        actor = self.actor()
        group = Group(actor.group, reduction)
        if not waits:
            yield group
            return
        actor.group, outer = group, actor.group
        try:
            yield group
        finally:
            actor.group = outer
        actor.join(*(task.end for task in group.tasks))
        for item, private, combine in group.private:
            item.plain[...] = combine(item.plain, private.plain)


def mapped_by(mapper, value):
    """Return what a mapper maps of an object: map types, arrays and modifiers."""
    return [(m.kind, array, m) for m in mapper(value) for array in m.items]
