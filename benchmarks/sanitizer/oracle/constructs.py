"""OpenMP's constructs and routines as the oracle carries them out: one after the other, in the order of the text."""

from __future__ import annotations

import copy
import functools
from contextlib import contextmanager

import numpy as np

from benchmarks.sanitizer.oracle import recording
from benchmarks.sanitizer.oracle.arrays import Array, Face
from benchmarks.sanitizer.oracle.clauses import Call, Depend, Map, depends, maps
from benchmarks.sanitizer.oracle.mappings import INFINITE, FaultError, Memory
from benchmarks.sanitizer.oracle.tasks import Event, Stream, Task, mapped_by

OPERATORS = {
    "+": (0, np.add),
    "*": (1, np.multiply),
    "min": (np.inf, np.minimum),
    "max": (-np.inf, np.maximum),
}


class Function:
    """A decorated function: its clauses, and `options`."""

    def __init__(self, library, function, clauses):
        self.library, self.function, self.clauses = library, function, clauses
        functools.update_wrapper(self, function)

    def options(self, **clauses):
        return type(self)(self.library, self.function, self.clauses | clauses)

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args, **kwargs):
        engine = self.library.engine
        if engine.recording is not None:
            engine.recording.append((self, args, kwargs))
            return None
        return self.encounter(Call(self.function, args, kwargs))

    def task(self, call, directive, **options):
        """Generate the task of a call, which also follows the tasks among its arguments."""
        values = list(call.bound.arguments.values())
        values += [v for value in values if type(value) is tuple for v in value]
        tasks = [("in", value) for value in values if isinstance(value, Task)]
        items = depends(call, self.clauses.get("depend")) + tasks
        engine = self.library.engine
        task = Task(engine, engine.actor(), directive, items, self.clauses.get("detach"), **options)
        task.line = self.function.__code__.co_firstlineno
        return task


class TaskFunction(Function):
    """`omp.task`."""

    def encounter(self, call):
        engine = self.library.engine
        undeferred = not self.clauses.get("if_", True) or bool(self.clauses.get("final"))
        task = self.task(call, "task", undeferred=undeferred)
        arguments = {}
        for name, value in call.bound.arguments.items():
            is_many = type(value) is tuple
            arguments[name] = tuple(map(result_of, value)) if is_many else result_of(value)
        self._reduce(call, task, arguments)
        call.bound.arguments.update(arguments)
        task.run(self.function, *call.bound.args, **call.bound.kwargs)
        if undeferred:
            engine.actor().join(task.end)
        return task

    def _reduce(self, call, task, arguments):
        for operator, items in (self.clauses.get("in_reduction") or {}).items():
            for item in items:
                name, value = call.parameter(item), call.value(item)
                arguments[name] = self.library.private_of(value, operator, task.group)


class TargetFunction(Function):
    """`omp.target` and `omp.target_loop`: the body gets device arrays."""

    def encounter(self, call):
        engine, clauses = self.library.engine, self.clauses
        device = self.library.device_of(clauses.get("device"), call)
        on_host = not clauses.get("if_", True) or device is None
        nowait = bool(clauses.get("nowait"))
        captured = self.library.captured(call, clauses, device, on_host=on_host)
        task = self.task(call, "target", undeferred=not nowait)
        task.device, task.own_stream = device, Stream(engine, device)
        region = self.library.region(call, clauses, device, captured)
        task.run(region.on_host if on_host else region.on_device, task)
        if nowait:
            return task
        engine.actor().join(task.end)
        return task.value


class Region:
    """One execution of a body on a device: what is mapped for which parameter."""

    def __init__(self, library, call, device, captured, clause, default, made_by="region"):
        self.library, self.call, self.device = library, call, device
        self.captured, self.default = captured, default
        self.clause, self.made_by = clause, made_by
        self.entered = []

    def on_host(self, task):
        arguments = self.call.bound.arguments
        for name, value in arguments.items():
            arguments[name] = result_of(value)
        arguments.update(self.captured)
        return self.call.function(*self.call.bound.args, **self.call.bound.kwargs)

    def on_device(self, task):
        library, arguments = self.library, self.call.bound.arguments
        explicit = self._explicit()
        steps, values = [], {}
        for name, value in arguments.items():
            if type(value) is tuple and any(isinstance(part, Array) for part in value):
                parts = [self._argument(name, part, explicit, steps) for part in value]
                values[name] = tuple(parts)
            else:
                values[name] = self._argument(name, value, explicit, steps)
        steps += explicit.get(None, ())
        entered = library.enter(steps, self.device, task, self.made_by)
        arguments.update({name: self._bound(value) for name, value in values.items()} | self.captured)
        result = self.call.function(*self.call.bound.args, **self.call.bound.kwargs)
        library.exit(entered, self.device, task)
        return result

    def _explicit(self):
        """Return the items of the map clause by the parameter that each belongs to."""
        found = {}
        for one in maps(self.clause, "tofrom"):
            for item in one.items:
                value = self.call.value(item)
                name = self.call.parameter(item)
                parts = value if type(value) is tuple else (value,)
                found.setdefault(name, []).extend((one, part) for part in parts)
        return found

    def _argument(self, name, value, explicit, steps):
        value = result_of(value)
        if name in self.captured:
            return value
        if isinstance(value, Array) and value.space is None:
            named = [one for one in explicit.get(name, ()) if _is_part(one[1], value)]
            steps.extend(named or [(Map(self.default, ()), value)])
            return ("device", named[0][1] if len(named) == 1 else value)
        for cls, mapper in reversed(self.library.engine.mappers):
            if isinstance(value, cls):
                mapped = [(m, array) for _, array, m in mapped_by(mapper, value)]
                steps.extend(mapped)
                return ("object", value, mapped)
        return value

    def _bound(self, value):
        """Return the argument of the body."""
        if type(value) is tuple and value and not isinstance(value[0], str):
            return tuple(map(self._bound, value))
        if type(value) is tuple and value and value[0] == "device":
            return self.library.corresponding(value[1], self.device)
        if type(value) is tuple and value and value[0] == "object":
            _, instance, mapped = value
            twin = copy.copy(instance)
            for name, attribute in vars(instance).items():
                if any(attribute is array for _, array in mapped):
                    setattr(twin, name, self.library.corresponding(attribute, self.device))
            return twin
        return value


def result_of(value):
    """Return the value of a task that is an argument; other arguments as they are."""
    return value.value if isinstance(value, Task) else value


def nothing(task):
    """Do nothing: the work of an empty task."""


def _is_part(item, value):
    return isinstance(item, Array) and item.size and item.bytes.is_in(value.bytes)


class Library:
    """What a program imports as `offload`, apart from names that stand for one call."""

    def __init__(self, engine, world, devices=2):
        self.engine, self.world, self.n_devices = engine, world, devices
        self.memory = Memory(engine.recorder)
        self.declared, self.held = [], {}

    # -- data ------------------------------------------------------------------------------------

    def device_of(self, device, call=None):
        """Return a device number, None for the host; device arrays among the arguments decide."""
        if call is not None:
            for value in call.bound.arguments.values():
                if isinstance(value, Array) and value.space is not None:
                    return value.space
        device = self.engine.actor().default_device if device is None else device
        return None if device in {-1, self.n_devices} else device

    def items(self, clause, default):
        """Return the pairs of a map and an array of a clause without a function."""
        found = []
        for one in maps(clause, default):
            for item in one.items:
                mapper = next((m for c, m in reversed(self.engine.mappers) if isinstance(item, c)), None)
                if mapper is None:
                    found.append((one, item))
                else:
                    found += [(m, array) for _, array, m in mapped_by(mapper, item)]
        return found

    def enter(self, steps, device, actor, made_by, *, structured=False):
        """Map items; return those that are mapped now, with their mappings."""
        self._declare_on(device, actor)
        entered, counted = [], set()
        for one, array in steps:
            if not isinstance(array, Array) or not array.size:
                continue
            mapping = self.memory.find(array.plain, device)
            if mapping is None:
                if one.present:
                    raise LookupError("an item is not present")
                mapping = self.memory.make(array.plain, device, made_by, actor.node, actor.line)
                new = True
            else:
                actor.join(mapping.node)
                new = False
            if id(mapping) not in counted:
                counted.add(id(mapping))
                self._count(mapping, 1, structured=structured)
            if (new or one.always) and one.kind in {"to", "tofrom"}:
                self.memory.copy_in(array.plain, mapping, actor)
            if new and one.zero:
                mapping.storage.memory[:] = 0
                mapping.storage.written[:] = True
                mapping.device_newer[:] = True
                mapping.wrote[:] = self._zeroed(mapping, actor)
            if new:
                mapping.node = actor.fork()
            entered.append((one, array, mapping))
        return entered

    def _zeroed(self, mapping, actor):
        view = mapping.view(mapping.host)
        return self.engine.recorder.note(view, writes=True, actor=actor, kind="copy").number

    def _count(self, mapping, change, *, structured):
        if mapping.count >= INFINITE:
            return
        if structured:
            mapping.structured += change
        else:
            mapping.dynamic += change

    def exit(self, entered, device, actor, *, structured=False):
        """Unmap items that `enter` has returned."""
        counted = set()
        for _, _, mapping in entered:
            if mapping.ended is None and id(mapping) not in counted:
                counted.add(id(mapping))
                self._count(mapping, -1, structured=structured)
        for one, array, mapping in entered:
            if mapping.ended is None and one.kind in {"from", "tofrom"} and (one.always or not mapping.count):
                self.memory.copy_out(array.plain, mapping, actor)
        for _, _, mapping in entered:
            if mapping.ended is None and not mapping.count:
                self.memory.remove(mapping)

    def exit_data(self, steps, device, actor):
        """Unmap items by `target_exit_data`."""
        found = [(one, a, self.memory.find(a.plain, device)) for one, a in steps if isinstance(a, Array) and a.size]
        found = [step for step in found if step[2] is not None]
        for _, _, mapping in found:
            actor.join(mapping.node)
        for one, _, mapping in found:
            if one.kind == "delete" and mapping.count < INFINITE:
                mapping.dynamic = 1
        self.exit(found, device, actor)

    def _declare_on(self, device, actor):
        """Give declared arrays their storage on a device that is used for the first time."""
        for array in self.declared:
            if all(m.device != device or m.host is not array.plain for m in self.memory.live):
                mapping = self.memory.make(array.plain, device, "declare", actor.node)
                mapping.dynamic = INFINITE
                self.memory.copy_in(array.plain, mapping, actor)
                mapping.node = actor.fork()

    def corresponding(self, array, device):
        """Return the device array of a host array that is present."""
        mapping = self.memory.find(array.plain, device)
        return Array(mapping.view(array.plain), device, self.world)

    def captured(self, call, clauses, device, *, on_host):
        """Return the copies of `firstprivate` and `private` items, which are made at the call."""
        found = {}
        space = None if on_host else device
        for clause in ("firstprivate", "private"):
            for item in clauses.get(clause) or ():
                value = call.value(item)
                if isinstance(value, Array):
                    twin = np.zeros_like(value.plain)
                    if clause == "firstprivate":
                        value.noted(writes=False)
                        twin[...] = value.plain
                    found[call.parameter(item)] = Array(twin, space, self.world)
        return found

    def region(self, call, clauses, device, captured):
        """Return an execution of a body."""
        default = clauses.get("defaultmap")
        default = default if isinstance(default, str) and default in {"to", "from", "alloc"} else "tofrom"
        return Region(self, call, device, captured, clauses.get("map"), default)

    def private_of(self, item, operator, group):
        """Return the private array of a task for an item of a reduction of its group."""
        identity, combine = OPERATORS[operator]
        if group is None:
            raise FaultError("a task of no group takes part in a reduction")
        private = Array(np.full_like(item.plain, identity), None, self.world)
        while item not in [i for items in group.reduction.values() for i in items] and group.outer is not None:
            group = group.outer
        group.private.append((item, private, combine))
        return private

    # -- tasks that constructs without a body generate ----------------------------------------------

    def construct(self, directive, work, *, depend=(), nowait=False):
        """Generate the task of a construct that copies, and carry it out."""
        engine = self.engine
        if engine.recording is not None:
            engine.recording.append((functools.partial(self.construct, directive, work), (), locals_of(depend, nowait)))
            return None
        task = Task(engine, engine.actor(), directive, depends(None, depend), undeferred=not nowait)
        task.run(work, task)
        if nowait:
            return task
        engine.actor().join(task.end)
        return None

    def target_enter_data(self, map=(), depend=(), nowait=False, device=None, if_=True):
        device = self.device_of(device)
        steps = self.items(map, "to") if if_ and device is not None else []
        return self.construct(
            "enter", lambda task: self.enter(steps, device, task, "enter"), depend=depend, nowait=nowait
        )

    def target_exit_data(self, map=(), depend=(), nowait=False, device=None, if_=True):
        device = self.device_of(device)
        steps = self.items(map, "from") if if_ and device is not None else []
        return self.construct("exit", lambda task: self.exit_data(steps, device, task), depend=depend, nowait=nowait)

    def target_update(self, to=(), from_=(), present=False, depend=(), nowait=False, device=None, if_=True):
        device = self.device_of(device)

        def work(task):
            for item, is_to in [*((a, True) for a in to), *((a, False) for a in from_)]:
                for _, array in self.items([item], "to"):
                    self.update(array, device, task, is_to=is_to, present=present)

        return self.construct("update", work if if_ else nothing, depend=depend, nowait=nowait)

    def update(self, array, device, actor, *, is_to, present=False):
        """Copy one item of an update."""
        if not array.size:
            return
        self._declare_on(device, actor)
        mapping = self.memory.find(array.plain, device)
        if mapping is None:
            if present:
                raise LookupError("an item is not present")
            return
        actor.join(mapping.node)
        (self.memory.copy_in if is_to else self.memory.copy_out)(array.plain, mapping, actor)

    @contextmanager
    def target_data(
        self, map=(), use_device_ptr=(), use_device_addr=(), device=None, if_=True, nogroup=False, **clauses
    ):
        device = self.device_of(device)
        steps = self.items(map, "tofrom") if if_ and device is not None else []
        clauses = {"depend": clauses.get("depend", ()), "nowait": clauses.get("nowait", False)}
        entered = []
        self.construct("data", lambda task: entered.extend(self.enter(steps, device, task, "data")), **clauses)
        given = tuple(self.corresponding(a, device) for a in (*use_device_ptr, *use_device_addr))
        with self.engine.group(waits=not nogroup):
            yield given
        self.construct("data", lambda task: self.exit(entered, device, task), **clauses)

    def declare_target(self, array, **_):
        self.declared.append(array)
        return array

    # -- memory ----------------------------------------------------------------------------------

    def target_alloc(self, shape, dtype="u1", device=None):
        return self.memory.allocate(shape, dtype, self.device_of(device), self.world)

    def target_free(self, array):
        self.engine.recorder.note(array.plain, writes=True, actor=self.engine.actor())  # conflicts with every use
        del self.memory.allocated[array.plain.__array_interface__["data"][0]]

    def target_memcpy_async(self, dst, src, nbytes=None, dst_offset=0, src_offset=0, *_, depend=(), nowait=True):
        def part(array, offset, n):
            flat = array.plain.reshape(-1).view(np.uint8)
            return array.of(flat[offset : offset + n])

        n = min(dst.nbytes - dst_offset, src.nbytes - src_offset) if nbytes is None else nbytes
        dst, src = part(dst, dst_offset, n), part(src, src_offset, n)
        return self.copy(dst, src, depend=depend, nowait=nowait)

    def target_memcpy(self, *args, **kwargs):
        return self.target_memcpy_async(*args, **kwargs, nowait=False)

    def target_memcpy_rect_async(
        self, dst, src, volume=None, dst_offsets=None, src_offsets=None, *, depend=(), nowait=True
    ):
        at = [tuple(offsets or (0,) * a.ndim) for offsets, a in ((dst_offsets, dst), (src_offsets, src))]
        left = [np.subtract(a.shape, offsets) for offsets, a in zip(at, (dst, src), strict=True)]
        volume = tuple(np.minimum(*left)) if volume is None else volume
        dst, src = (
            a.of(a.plain[tuple(slice(o, o + n) for o, n in zip(offsets, volume, strict=True))])
            for a, offsets in zip((dst, src), at, strict=True)
        )
        return self.copy(dst, src, depend=depend, nowait=nowait)

    def target_memcpy_rect(self, *args, **kwargs):
        return self.target_memcpy_rect_async(*args, **kwargs, nowait=False)

    def target_memset_async(self, array, value, nbytes=None, *, depend=(), nowait=True):
        def work(task):
            array.plain.reshape(-1).view(np.uint8)[:nbytes] = value
            access = self.engine.recorder.note(array.plain, writes=True, actor=task, kind="copy")
            self.memory.accessed(access, array.space)

        return self.construct("memset", work, depend=depend, nowait=nowait)

    def target_memset(self, *args, **kwargs):
        return self.target_memset_async(*args, **kwargs, nowait=False)

    def copy(self, dst, src, depend=(), nowait=False, **_):
        return self.construct("copy", lambda task: self.memory.copied(dst, src, task), depend=depend, nowait=nowait)

    @contextmanager
    def buffers(self, count, shape, dtype="f8", device=None):
        made = [self.target_alloc(shape, dtype, device) for _ in range(count)]
        with self.engine.group():
            yield Ring(made)
        for array in made:
            self.target_free(array)

    def target_associate_ptr(self, array, device_array, device=None, offset=0):
        self.target_disassociate_ptr(array)
        device = self.device_of(device)
        mapping = self.memory.make(array.plain, device, "enter", self.engine.actor().fork())
        storage = self.memory.storage_of(Where(device_array))
        mapping.storage, mapping.dynamic = storage, INFINITE
        mapping.offset, storage.mapping = offset, mapping

    def target_disassociate_ptr(self, array, device=None):
        for mapping in list(self.memory.live):
            if mapping.host is array.plain:
                self.memory.remove(mapping)

    def get_mapped_ptr(self, array, device=None):
        device = self.device_of(device)
        return None if self.memory.find(array.plain, device) is None else self.corresponding(array, device)

    def target_is_present(self, array, device=None):
        return self.memory.find(array.plain, self.device_of(device)) is not None

    # -- the rest --------------------------------------------------------------------------------

    def array_namespace(self, *arrays):
        spaces = {a.space for a in arrays if isinstance(a, Array)} or {self.engine.actor().device}
        return Face(self.world, np, spaces.pop())

    def current_stream(self):
        actor = self.engine.actor()
        if actor.own_stream is not None:
            return actor.own_stream
        if actor.stream is None:
            actor.stream = Stream(self.engine)
        return actor.stream

    def declare_mapper(self, cls, function, name="default"):
        self.engine.mappers.append((cls, function))

    @contextmanager
    def interop(self, targetsync=True, device=None, depend=(), stream=None):
        engine, actor = self.engine, self.engine.actor()
        stream = Stream(engine) if stream is None else stream
        items = depends(None, depend)
        entry = Task(engine, actor, "interop", items)
        entry.finish()
        stream.follow(entry.end)
        yield InteropObject(stream, device)
        leave = Task(engine, actor, "interop", items)
        engine.recorder.edge(stream.tail, leave.node)
        leave.finish()

    def event(self):
        return Event(self.engine)

    def depobj(self, dependence):
        return DependObject(dependence.kind, dependence.items)


class Where:
    """The place of a device array, as `Memory.storage_of` wants it."""

    def __init__(self, array):
        self.bytes = recording.Bytes.of(array.plain)


class Ring:
    """The buffers of `omp.buffers`."""

    def __init__(self, made):
        self.made = made

    def __getitem__(self, number):
        return self.made[number % len(self.made)]

    def __len__(self):
        return len(self.made)

    def __iter__(self):
        return iter(self.made)


class InteropObject:
    """What ``with omp.interop(…) as`` gives."""

    def __init__(self, stream, device):
        self.stream, self.device = stream, device


class DependObject(Depend):
    """A `depobj`."""

    def update(self, kind):
        self.kind = kind

    def destroy(self):
        self.items = ()


def locals_of(depend, nowait):
    """Return the keywords of a construct that is recorded."""
    return {"depend": depend, "nowait": nowait}
