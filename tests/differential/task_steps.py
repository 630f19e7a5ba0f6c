"""The steps of programs that are tasks, blocks of tasks, task graphs and loops."""

from __future__ import annotations

import contextlib
import re
import threading
from concurrent.futures import Future

import numpy as np

import offload as omp
from offload import acc
from tests.differential.functions import Table, inc, returns_number, total
from tests.differential.world import OPERATIONS, BodyError, World, attempted, described, in_threads, operation

_SITE = re.compile(r"generated at [^;]+; ")


@operation
def task(world, step):
    """Generate a task on an array; out of chains, wait for its result."""
    name, number, kind = step["function"], step["array"], step["type"]
    writes = name in ("bump", "nested", "fails")
    if (kind in {"inoutset", "in_"} and writes) or (kind == "mutexinoutset" and name != "bump"):
        kind = "inout"  # the order of tasks that such a type leaves open must not show
    root, function = world.roots[number], world.function("task", name)
    if kind == "task":
        depend = [omp.inout(root), *(omp.in_(earlier) for earlier in (world.chain or ())[-1:])]
    elif kind == "string":
        depend = [omp.inout(root), omp.inout("x")]
    elif kind == "all_memory":
        depend = [omp.inout(omp.all_memory)]
    else:
        depend = [getattr(omp, kind)(root)]
    clauses = {key: step[key] for key in ("if_", "priority", "final") if key in step}
    generated = function.options(depend=depend, **clauses)(world.array(number))
    if world.chain is not None:
        return world.waited(generated)
    omp.taskwait(depend=[omp.inout(root)])
    try:
        return generated.result()
    finally:
        omp.taskwait()


def _settled(tasks, *ends):
    """Return what has come of tasks that have been waited for, after how the waits have ended."""
    names_causes = sum(generated.state == "failed" for generated in tasks) < 2
    found = []
    for generated in tasks:
        try:
            end = generated.exception() or generated.result()
        except BaseException as error:  # that of a cancelled task is none
            end = error
        found.append(f"{generated.state} {described(end, names_causes=names_causes)}")
    return [*(described(end, names_causes=names_causes) for end in ends), found]


def _outcome(call):
    """Return a text for what a call returns or raises."""
    return described(attempted(call))


@operation
def chain(world, step):
    """Carry out deferred constructs, then wait for them."""
    if world.chain is not None:
        return world.carry_out(step["steps"])
    world.chain = []
    try:
        world.carry_out(step["steps"])
    finally:
        tasks, world.chain = world.chain, None
    waits = [lambda: omp.taskwait(depend=[omp.in_(*world.roots[:3])])] if step["waits"] else []
    return _settled(tasks, *[attempted(wait) for wait in (*waits, omp.taskwait)])


@operation
def group(world, step):
    """Carry out deferred constructs in a taskgroup, of which some take part in a reduction."""
    clauses = (
        {"task_reduction": {"+": [world.item([step["array"], None], may_be_read_only=False)]}}
        if step["reduces"]
        else {}
    )
    outer, world.chain, ended = world.chain, [], None
    total = world.arrays[step["array"]]
    try:
        with omp.taskgroup(**clauses):
            if step["reduces"]:
                for value in (1, 2, 3):
                    omp.task(in_reduction={"+": [total]})(lambda x, value: x.__iadd__(value) is None)(total, value)
                omp.taskwait()
            else:
                world.carry_out(step["steps"])
            if step["raises"]:
                raise BodyError("a group fails")  # noqa: TRY301  # it leaves the block
    except Exception as error:
        ended = error
    finally:
        tasks, world.chain = world.chain, outer
    return _settled(tasks, ended)


@operation
def repeat(world, step):
    for _ in range(step["times"]):
        world.carry_out(step["steps"])


@operation
def hot(world, step):
    """Carry out steps on an array that is present some times, by the same functions."""
    array = world.arrays[step["array"]]
    blocks = {
        "target_data": lambda: omp.target_data(map=[omp.tofrom(array)]),
        "acc_data": lambda: acc.data(copy=[array]),
        "devices": lambda: omp.target_data(map=[omp.tofrom(array)], devices="all"),
        "none": contextlib.nullcontext,
    }
    inner = (
        [{"op": step["within"], "steps": step["steps"], "waits": None, "count": 1}] if step["within"] else step["steps"]
    )
    with blocks[step["kind"]]():
        for _ in range(step["times"]):
            world.carry_out(inner)


@operation
def cancel(world, step):
    """Cancel a taskgroup in its first task, which the others follow."""
    x, root = world.array(step["array"]), world.roots[step["array"]]

    def cancels(x):
        omp.cancel("taskgroup")
        x += 1

    ordered = {"depend": [omp.inout(root)]}
    with omp.taskgroup():
        tasks = [omp.task(**ordered)(cancels)(x)]
        tasks += [world.function("task", "bump").options(**ordered)(x) for _ in range(step["count"])]
    return _settled(tasks)


@operation
def taskloop(world, step):
    """Split a range into tasks that write different elements, or reduce."""
    x, count, kind = world.arrays[step["array"]], step["count"], step["kind"]
    flat, sizes = x.reshape(-1), step["sizes"]

    def plain(part):
        for i in part:
            flat[i % flat.size] += 1

    def fails(part):
        raise BodyError(f"a part fails from {part[0]}")

    def reduces(part, total):
        total += len(part)

    def alone(part):
        x[...] += len(part)

    match kind:
        case "plain":
            return omp.taskloop(range(min(count, flat.size)), plain, **sizes)
        case "reduces":
            return omp.taskloop(range(count), reduces, reduction={"+": [x]}, **sizes)
        case "alone":
            return omp.taskloop(range(count), alone, reduction={"+": [x]}, **sizes)
        case "nogroup":
            tasks = omp.taskloop(range(min(count, flat.size)), plain, nogroup=True, **sizes)
            omp.taskwait()
            return {described(task) for task in tasks}, len(tasks) if sizes else "some"
        case "fails":
            done = _outcome(lambda: omp.taskloop(range(min(count, 3)), fails))
            return _SITE.sub("", done)  # at times it is a line of the package
    parts = []
    omp.taskloop(list(range(count)), lambda part: parts.append(len(part)), **sizes)
    return sorted(parts) if sizes else sum(parts)  # without sizes, they follow from the number of threads


@operation
def detach(world, step):
    """Fulfil the event of a task before, in or after its body; a second task follows."""
    x, root, when = world.array(step["array"]), world.roots[step["array"]], step["when"]
    event, source = omp.Event(), Future()
    if when == "before":
        event.fulfill()

    def body(x):
        x += 1
        if when == "inside":
            event.fulfill()
        if when == "fails":
            raise BodyError("a detached body fails")
        return "detached"

    ordered = {"depend": [omp.inout(root)]}
    tasks = [omp.task(detach=event, **ordered)(body)(x), world.function("task", "sum").options(**ordered)(x)]
    if when == "event":
        tasks.append(omp.task(depend=[omp.in_(event)])(lambda: "follows")())
    errors = []
    if when in {"after", "twice", "event", "fails"}:
        event.fulfill()
    if when == "twice":
        errors.append(_outcome(event.fulfill))
    if when == "thread":
        thread = threading.Thread(target=omp.fulfill_event, args=[event])
        thread.start()
        thread.join()
    if when == "future":
        event.fulfill_on(source)
        source.set_result(3)
    errors.append(_outcome(omp.taskwait))
    return event.is_fulfilled, errors, _settled(tasks)


@operation
def following(world, step):
    """Pass tasks as arguments to tasks and regions."""
    x, root = world.array(step["array"]), world.roots[step["array"]]
    number = omp.task(depend=[omp.inout(root)])(returns_number)(x)
    made = omp.task(lambda k: np.arange(12.0) + k)(number)
    follows = omp.target(nowait=True)(total)(made) if step["on_device"] else omp.task(total)(made)
    bumped = omp.task(depend=[omp.inout(root), omp.in_(follows)])(inc)(x, number)
    return _settled([number, follows, bumped], attempted(omp.taskwait))


@operation
def depobj(world, step):
    """Order tasks by depend objects, which are changed in between."""
    x, root, bump = world.array(step["array"]), world.roots[step["array"]], world.function("task", "bump")
    ordered = omp.depobj(omp.inout(root))
    tasks = [bump.options(depend=[ordered])(x), bump.options(depend=[ordered])(x)]
    ordered.update("in")
    tasks.append(world.function("task", "sum").options(depend=[ordered])(x))
    outcome = _outcome(omp.taskwait)
    ordered.destroy()
    return outcome, _settled(tasks), _outcome(lambda: bump.options(depend=[ordered])(x))


@operation
def coroutine(world, step):
    """Run coroutines as tasks, which await tasks and fail or not."""
    x, root = world.array(step["array"]), world.roots[step["array"]]

    async def body(x):
        first = world.function("task", "bump").options(depend=[omp.inout(root)])(x)
        await first
        await omp.taskwait()
        async with omp.taskgroup():
            world.function("task", "bump").options(depend=[omp.inout(root)])(x)
        if step["fails"]:
            raise BodyError("a coroutine fails")
        return "awaited"

    tasks = [omp.task(depend=[omp.inout(root)])(body)(x)]
    tasks.append(world.function("task", "sum").options(depend=[omp.inout(root)])(x))
    return _settled(tasks, attempted(omp.taskwait))


@operation
def stream(world, step):
    """Complete a task with work that its body enqueues on a stream."""
    x, root, event = world.array(step["array"]), world.roots[step["array"]], omp.Event()

    def body():
        stream = omp.current_stream()
        stream.launch(np.copyto, x, 3, "unsafe")
        event.fulfill_on(stream)

    tasks = [omp.task(detach=event, depend=[omp.inout(root)])(body)()]
    tasks.append(world.function("task", "sum").options(depend=[omp.inout(root)])(x))
    return _settled(tasks, attempted(omp.taskwait))


# -- graphs --------------------------------------------------------------------------------------------
def _graph_of(world, which):
    """Return a taskgraph function of two arrays, the same each time."""
    inc, add = (world.function("target", name) for name in ("inc", "add"))
    bump, fails = (world.function("task", name) for name in ("bump", "fails"))

    def ordered(*arrays):
        return {"nowait": True, "depend": [omp.inout(*arrays)]}

    def chained(x, y):
        for _ in range(2):
            inc.options(**ordered(x))(x)
        add.options(**ordered(x, y))(x, y)

    def mixed(x, y):
        inc.options(**ordered(x, y))(x)
        bump.options(depend=[omp.inout(x, y)])(x)
        inc.options(**ordered(x, y))(y)

    def data(x, y):
        omp.target_enter_data(map=[omp.to(x)], **ordered(x, y))
        inc.options(**ordered(x, y))(x)
        omp.target_update(from_=[x], **ordered(x, y))
        inc.options(**ordered(x, y))(x)
        omp.target_exit_data(map=[omp.from_(x)], **ordered(x, y))

    def copies(x, y):
        slot = world.slots[0]
        if slot is not None:
            omp.target_memcpy_async(slot, x, depend=[omp.inout(x, slot)])
            inc.options(**ordered(slot))(slot)
            omp.target_memcpy_async(x, slot, depend=[omp.inout(x, slot)])

    def failing(x, y):
        bump.options(depend=[omp.inout(x)])(x)
        fails.options(depend=[omp.inout(x)])(x)
        inc.options(**ordered(x))(x)

    def nested(x, y):
        omp.task(depend=[omp.inout(x)])(lambda: bump(x).result())()
        with omp.taskgroup():
            inc.options(**ordered(y))(y)

    def present(x, y):
        with omp.target_data(map=[omp.tofrom(x)]):
            inc(x)
            omp.target_update(from_=[x])
            add(x, y)

    def on_host(x, y):
        bump.options(depend=[omp.inout(x)])(x)
        bump.options(depend=[omp.inout(x, y)])(y)

    bodies = {
        "nested": nested,
        "present": present,
        "chain": chained,
        "mixed": mixed,
        "data": data,
        "copies": copies,
        "fails": failing,
        "host": on_host,
    }
    return omp.taskgraph(bodies[which])


@operation
def graph(world, step):
    """Call a taskgraph function some times: the first call records, others replay."""
    which, (first, second) = step["which"], step["arrays"]
    if world.roots[first] is world.roots[second]:
        second = 0 if world.roots[first] is world.roots[1] else 1  # the bodies order whole arrays, not parts
    if which not in world.graphs:
        world.graphs[which] = _graph_of(world, which)
    function, outcomes = world.graphs[which], []
    if "options" in step:
        function = function.options(**step["options"])
    for _ in range(step["times"]):
        outcomes += [_outcome(lambda: function(world.array(first), world.array(second))), _outcome(omp.taskwait)]
    return outcomes


@operation
def record(world, step):
    """Record deferred constructs, and say which tasks and edges the graph has."""
    outer, world.chain, ended = world.chain, [], None
    try:
        with omp.record(execute=step["executes"]) as recorded:
            world.records = True
            world.carry_out(step["steps"])
    except Exception as error:
        ended = error
    finally:
        tasks, world.chain, world.records = world.chain, outer, False
    ends = ended, attempted(omp.taskwait)
    names = [node.name for node in recorded.tasks]
    numbers = {id(node): number for number, node in enumerate(recorded.tasks)}
    edges = sorted(
        (*(numbers.get(id(end), -1) for end in edge[:2]), *map(described, edge[2:3]))
        for edge in map(tuple, recorded.edges)
    )
    return names, edges, _settled(tasks, *ends) if step["executes"] else [*ends, len(tasks)]


# -- loops ---------------------------------------------------------------------------------------------
@operation
def loop(world, step):
    """Call a loop function, with arrays that have no memory in common: iterations would depend on each other."""
    name, items = step["function"], step["items"]
    if world.chain is not None and name in {"host", "acc"}:
        name = "saxpy"  # these are not deferred, and would not wait for the others
    if world.roots[items[0][0]] is world.roots[items[1][0]]:
        others = (8, 5) if name == "sweep" else (0, 1)
        other = next(number for number in others if world.roots[number] is not world.roots[items[0][0]])
        items = [items[0], [other, items[1][1]]]
    views = [world.view(item) for item in items]
    if name in {"scatter", "count", "search"}:
        views[0] = np.arange(views[1].size) % 12 if name == "count" else np.arange(views[1].size)[::-1].copy()
    elif name != "host":
        views = [world.item(item) for item in items]
    function = world.function("loop", name)
    if name == "host":
        return function(*views)
    clauses = {}
    if step.get("devices") and name != "search":
        clauses["devices"] = step["devices"]
    elif step.get("device") is not None:
        clauses["device"] = step["device"]
    if name == "acc":
        done = function.options(**clauses)(*views)
        acc.wait(*([world.first_queue] if world.first_queue else []))
        return done
    clauses |= world.deferral(items)
    if name == "deferred":
        clauses["depend"] = [omp.inout(*world.storage(items))]
    done = function.options(**clauses)(*views)
    if world.chain is None and isinstance(done, omp.Task):
        omp.taskwait()
        return done.result()
    return world.waited(done)


# -- threads -------------------------------------------------------------------------------------------
@operation
def threads(world, step):
    """Carry out programs on threads of their own, with arrays of their own."""
    worlds = [World(world.mode, Table(), [], 20 * k) for k in range(1, len(step["programs"]) + 1)]
    for inner in worlds:
        inner.n_devices = world.n_devices
    for lines in in_threads(worlds, step["programs"]):
        world.lines += ["thread", *lines]
    return "joined"


__all__ = ["OPERATIONS"]
