"""The steps of programs that are OpenACC's."""

from __future__ import annotations

import offload as omp
from offload import acc
from tests.differential.world import BodyError, attempted, described, operation


def _queue(world, clauses):
    """Return the clauses of a queue with the numbers of this world, and the queue that is to be waited for."""
    first, clauses = world.first_queue, dict(clauses)
    if world.queue is not None:
        return {"async_": world.queue, **({"wait": world.other_queue} if world.other_queue else {})}, None
    if "async_" in clauses and clauses["async_"] is not True:
        clauses["async_"] += first
    elif "async_" in clauses and first:
        clauses["async_"] = first
    if "wait" in clauses:
        wait = clauses["wait"]
        clauses["wait"] = [number + first for number in wait] if isinstance(wait, list) else wait + first
    return clauses, clauses.get("async_")


def _waited(queue, done, device=None):
    """Wait for an operation's queue if it has one; return its result."""
    where = {} if device is None else {"device": device}
    if queue is True:
        acc.wait(**where)
    elif queue is not None:
        acc.wait(queue, **where)
    return done.result() if queue is not None and isinstance(done, omp.Task) else done


def _device(where):
    """Return the device whose queues a construct with these clauses is in."""
    devices = where.get("devices")
    if devices is not None:
        return 0 if devices == "all" else devices[0]
    return where.get("device", where.get("device_num"))


def _items(world, step):
    return [world.item(item, is_clause=True) for item in step["items"]]


def _data(world, step):
    """Return the data clause of a step."""
    items = _items(world, step)
    return {"create": [acc.zero(*items)]} if step["word"] == "zero" else {step["word"]: items}


@operation
def acc_(world, step):
    """Call a compute region."""
    queue, waits = _queue(world, step["queue"])
    clauses = {**queue, **{key: step[key] for key in ("if_", "device") if key in step}}
    function = world.function("acc", step["function"])
    done = (function.options(**clauses) if clauses else function)(
        *(world.item(item, may_be_tensor=False) for item in step["items"])
    )
    return _waited(waits, done, step.get("device"))


@operation
def acc_enter(world, step):
    queue, waits = _queue(world, step["queue"])
    return _waited(waits, acc.enter_data(**_data(world, step), **queue, **step["where"]), _device(step["where"]))


@operation
def acc_exit(world, step):
    queue, waits = _queue(world, step["queue"])
    clauses = {**_data(world, step), **queue, **step["where"], "finalize": step["finalize"]}
    return _waited(waits, acc.exit_data(**clauses), _device(step["where"]))


@operation
def acc_update(world, step):
    queue, waits = _queue(world, step["queue"])
    clauses = {**_data(world, step), **queue, **step["where"], "if_present": step["if_present"]}
    return _waited(waits, acc.update(**clauses), _device(step["where"]))


@operation
def acc_routine(world, step):
    """Call a routine with an array; one without a queue first waits for queued regions, which map arrays meanwhile."""
    name, array = step["name"], world.item(step["item"])
    if world.queue is not None:
        if name not in {"is_present", "deviceptr", "delete_finalize"}:
            return getattr(acc, f"{name}_async")(array, world.queue)
        for number in filter(None, (world.queue, world.other_queue)):
            world.lines.append(f"waited -> {described(_ended(number), names_causes=world.chain is None)}")
    if step["is_async"] and name not in {"is_present", "deviceptr"}:
        return _waited(1 + world.first_queue, getattr(acc, f"{name}_async")(array, 1 + world.first_queue))
    found = getattr(acc, name)(array)
    return found if name == "is_present" or found is None else type(found).__name__


@operation
def acc_block(world, step):
    """Carry out steps in a data region."""
    queue, waits = _queue(world, step["queue"])
    try:
        with acc.data(**_data(world, step), **queue, **step["where"]):
            _waited(waits, None, _device(step["where"]))
            if step["uses"]:
                with acc.host_data(use_device=_items(world, step), if_present=True) as found:
                    world.lines.append(f"used: {type(found).__name__}")
            world.carry_out(step["steps"])
            if step["raises"]:
                raise BodyError("a block fails")
    finally:
        _waited(waits, None, _device(step["where"]))
    return "left"


@operation
def queues(world, step):
    """Give operations to queues, each of which follows the one before, then wait for the queues."""
    if world.queue is not None:
        return world.carry_out(step["steps"])
    numbers = [world.first_queue + k + 1 for k in range(step["count"])]
    try:
        for k, inner in enumerate(step["steps"]):
            world.queue = numbers[k % len(numbers)]
            world.other_queue = numbers[(k - 1) % len(numbers)] if len(numbers) > 1 else None
            on_one_device = {**inner, "where": {}} if "where" in inner else inner
            world.carry_out_one({key: on_one_device[key] for key in on_one_device if key != "device"})
    finally:
        world.queue = world.other_queue = None
    return [_ended(number) for number in numbers]


def _ended(number):
    """Wait for a queue; return how that ended, and whether the queue is empty."""
    return attempted(lambda: acc.wait(number)), acc.async_test(number)
