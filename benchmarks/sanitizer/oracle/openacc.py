"""OpenACC's constructs and routines of the oracle.

Operations of one queue are a chain. A data construct, which maps or unmaps an array, is after all earlier operations
that need the array, and before all later ones, of the same code (the interface, section 14). The operations of two
tasks have no program order among themselves.
"""

from __future__ import annotations

from contextlib import contextmanager

from benchmarks.sanitizer.oracle.arrays import Array
from benchmarks.sanitizer.oracle.clauses import Map
from benchmarks.sanitizer.oracle.constructs import Function, Region
from benchmarks.sanitizer.oracle.tasks import Stream

NOVAL, SYNC, DEFAULT = -1, -2, -3
KINDS = {
    "copy": "tofrom",
    "copyin": "to",
    "copyout": "from",
    "create": "alloc",
    "present": "present",
    "no_create": "present",
}
"""OpenACC's data clauses as map types."""


class Zeroed(tuple):
    """Items of ``acc.zero``."""

    __slots__ = ()


def data_maps(clauses):
    """Return the data clauses as maps."""
    found = []
    for name, kind in KINDS.items():
        for item in clauses.get(name) or ():
            items, zero = (tuple(item), True) if isinstance(item, Zeroed) else ((item,), False)
            found.append(Map("alloc" if kind == "present" else kind, items, present=kind == "present", zero=zero))
    return found


class Compute(Function):
    """`acc.parallel`, `kernels`, `serial` and their loops."""

    def encounter(self, call):
        acc, library = self.library.acc, self.library
        clauses = self.clauses
        device = library.device_of(clauses.get("device"), call)
        captured = library.captured(call, clauses, device, on_host=False)
        mapped = data_maps(clauses)
        region = Region(library, call, device, captured, mapped, "tofrom")
        arrays = [v for v in call.bound.arguments.values() if isinstance(v, Array) and v.space is None]
        task = self.task(call, "target", undeferred=acc.is_sync(clauses.get("async_")), queued=True)
        task.device, task.own_stream = device, Stream(library.engine, device)
        return acc.operate(task, lambda: region.on_device(task), arrays, device, clauses, maps=False)


class OpenACC:
    """What a program imports as `offload.acc`."""

    async_noval, async_sync, async_default = NOVAL, SYNC, DEFAULT

    def __init__(self, library):
        self.library, self.engine = library, library.engine
        self.default_queue = {}
        self.operations = []
        library.acc = self

    # -- queues ----------------------------------------------------------------------------------

    def is_sync(self, async_):
        return async_ is None or async_ is False or async_ == SYNC

    def number(self, async_):
        """Return the number of the queue that an async-argument names."""
        if async_ is True or async_ == NOVAL:
            return self.default_queue.get(self.engine.actor().root, 0)
        return 0 if async_ == DEFAULT else async_

    def queue(self, async_, device):
        return self.engine.stream(self.number(async_), device)

    def queues(self, wait, device):
        """Return the queues that a wait names; all of the device's for True."""
        if wait is None or wait is False:
            return []
        if wait is True or (isinstance(wait, (list, tuple)) and not wait):
            return [s for (d, _), s in self.engine.streams.items() if d == device]
        return [self.queue(q, device) for q in (wait if isinstance(wait, (list, tuple)) else [wait])]

    def operate(self, task, work, arrays, device, clauses, *, maps):
        """Carry out an operation in its place: after its queue, its waits and what presence asks for."""
        recorder, actor = self.engine.recorder, self.engine.actor()
        async_ = clauses.get("async_")
        before = [q.tail for q in self.queues(clauses.get("wait"), device)]
        is_sync = self.is_sync(async_)
        if not is_sync:
            before.append(self.queue(async_, device).tail)
        needs = [a.bytes for a in arrays if a.size]
        for other in self.operations:
            shares = any(a.common(b) is not None for a in needs for b in other[2])
            if shares and (maps or other[3]) and (other[0], other[4]) == (actor, device):
                before.append(other[1])
        for node in before:
            recorder.edge(node, task.node)
        task.run(work)
        self.operations.append((actor, task.end, needs, maps, device))
        if is_sync:
            actor.join(task.end)
            return task.value
        queue = self.queue(async_, device)
        queue.follow(task.end)
        return task

    def construct(self, directive, work, arrays, device, clauses, *, maps):
        """Generate the task of a data construct."""
        from benchmarks.sanitizer.oracle.clauses import depends
        from benchmarks.sanitizer.oracle.tasks import Task

        sync = self.is_sync(clauses.get("async_"))
        items = depends(None, clauses.get("depend"))
        task = Task(self.engine, self.engine.actor(), directive, items, undeferred=sync, queued=True)
        result = self.operate(task, lambda: work(task), arrays, device, clauses, maps=maps)
        return None if sync else result

    # -- data ------------------------------------------------------------------------------------

    @contextmanager
    def data(self, device=None, if_=True, **clauses):
        device = self.library.device_of(device)
        steps = self.library.items(data_maps(clauses), "tofrom") if if_ else []
        arrays = [array for _, array in steps]
        entered = []

        def enter(task):
            entered.extend(self.library.enter(steps, device, task, "data", structured=True))

        def leave(task):
            self.library.exit(entered, device, task, structured=True)

        self.construct("data", enter, arrays, device, clauses, maps=True)
        yield
        self.construct("data", leave, arrays, device, {**clauses, "wait": None}, maps=True)

    def enter_data(self, device=None, if_=True, **clauses):
        device = self.library.device_of(device)
        steps = self.library.items(data_maps(clauses), "to") if if_ else []
        arrays = [array for _, array in steps]
        return self.construct(
            "enter", lambda task: self.library.enter(steps, device, task, "enter"), arrays, device, clauses, maps=True
        )

    def exit_data(self, device=None, if_=True, finalize=False, copyout=(), delete=(), **clauses):
        device = self.library.device_of(device)
        steps = [(Map("from", ()), a) for a in copyout] + [(Map("release", ()), a) for a in delete]

        def work(task):
            if finalize:
                for _, array in steps:
                    mapping = self.library.memory.find(array.plain, device)
                    if mapping is not None:
                        mapping.dynamic = 1
            self.library.exit_data(steps, device, task)

        return self.construct("exit", work, [a for _, a in steps], device, clauses, maps=True)

    def update(self, self_=(), host=(), device=(), device_num=None, if_present=False, **clauses):
        number = self.library.device_of(device_num)
        items = [(a, False) for a in (*self_, *host)] + [(a, True) for a in device]

        def work(task):
            for array, is_to in items:
                self.library.update(array, number, task, is_to=is_to, present=not if_present)

        return self.construct("update", work, [a for a, _ in items], number, clauses, maps=False)

    @contextmanager
    def host_data(self, use_device, device=None, **_):
        device = self.library.device_of(device)
        yield tuple(self.library.corresponding(a, device) for a in use_device)

    @staticmethod
    def zero(*items):
        return Zeroed(items)

    # -- routines --------------------------------------------------------------------------------

    def copyin(self, array, **clauses):
        return self.enter_data(copyin=[array], **clauses)

    def create(self, array, **clauses):
        return self.enter_data(create=[array], **clauses)

    def copyout(self, array, **clauses):
        return self.exit_data(copyout=[array], **clauses)

    def delete(self, array, **clauses):
        return self.exit_data(delete=[array], **clauses)

    def update_device(self, array, async_=None, device=None):
        return self.update(device=[array], async_=async_, device_num=device)

    def update_self(self, array, async_=None, device=None):
        return self.update(self_=[array], async_=async_, device_num=device)

    update_device_async, update_self_async = update_device, update_self

    # -- waits -----------------------------------------------------------------------------------

    def wait(self, *queues, async_=None, device=None, if_=True):
        if not if_:
            return
        waited = self.queues(list(queues), self.library.device_of(device))
        if self.is_sync(async_):
            self.engine.actor().join(*(q.tail for q in waited))
        else:
            own = self.queue(async_, self.library.device_of(None))
            own.follow(*(q.tail for q in waited))

    def wait_all(self, device=None):
        self.wait(device=device)

    def wait_async(self, queue, async_, device=None):
        self.wait(queue, async_=async_, device=device)

    def wait_all_async(self, async_, device=None):
        self.wait(async_=async_, device=device)

    def set_default_async(self, number):
        self.default_queue[self.engine.actor().root] = number

    def get_cuda_stream(self, queue, device=None):
        return self.queue(queue, self.library.device_of(device))

    def is_present(self, array, device=None):
        return self.library.target_is_present(array, device)
