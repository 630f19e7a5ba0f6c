"""The steps of programs that allocate, copy and share device memory."""

from __future__ import annotations

import numpy as np

import offload as omp
from offload import acc
from tests.differential.world import operation


@operation
def alloc(world, step):
    slot = step["slot"]
    if world.slots[slot] is not None:
        omp.target_free(world.slots[slot])
        world.slots[slot] = None
    made = omp.target_alloc(step["count"], dtype="f8", device=step["device"])
    omp.target_memset(made, 0)
    world.slots[slot] = made
    return made


@operation
def free(world, step):
    array, world.slots[step["slot"]] = world.slots[step["slot"]], None
    return omp.target_free(array)


def _copied(world, step, routine, ends, arguments, **more):
    """Call a routine, or in a chain or if the step says so its deferred form, which is waited for."""
    if world.chain is None and not step["is_deferred"]:
        return getattr(omp, routine)(*arguments, **more)
    storage = world.storage(ends)
    task = getattr(omp, f"{routine}_async")(*arguments, depend=[omp.inout(*storage)] if storage else [], **more)
    if world.chain is not None:
        return world.waited(task)
    omp.taskwait()
    return task.result() if isinstance(task, omp.Task) else task


@operation
def memcpy(world, step):
    ends = step["dst"], step["src"]
    return _copied(world, step, "target_memcpy", ends, [world.end(end) for end in ends], **step.get("more", {}))


@operation
def rect(world, step):
    ends, more = (step["dst"], step["src"]), dict(step.get("more", {}))
    if step.get("dimensions"):
        more |= {"dst_dimensions": [3, 4], "src_dimensions": [2, 6]}
    return _copied(world, step, "target_memcpy_rect", ends, [world.end(end) for end in ends], **more)


@operation
def memset(world, step):
    slot = step["slot"]
    return _copied(world, step, "target_memset", [slot], [world.slots[slot], step["value"], step["nbytes"]]) is None


@operation
def copy(world, step):
    return omp.copy(world.end(step["dst"]), world.end(step["src"]))


@operation
def on_slot(world, step):
    """Call a target function with a device array, and perhaps with an array of the host."""
    slot, number = step["slot"], step["array"]
    name, items = ("inc", [slot]) if number is None else ("add", [slot, [number, None]])
    if world.slots[slot] is None:
        return "nothing there"
    clauses = world.deferral(items)
    if step.get("device") is not None:
        clauses["device"] = step["device"]
    arguments = [world.slots[slot]] + ([] if number is None else [world.array(number)])
    return world.waited(world.function("target", name).options(**clauses)(*arguments))


@operation
def persist(world, step):
    """Associate device memory with an array, end an association, or declare an array."""
    array, device = world.item(step["item"]), step["device"]
    match step["kind"]:
        case "associate":
            return omp.target_associate_ptr(array, world.slots[step["slot"]], device)
        case "disassociate":
            return omp.target_disassociate_ptr(array, device)
        case "declare":
            world.declares = True
            return omp.declare_target(array)
        case "map_data":
            return acc.map_data(array, world.slots[step["slot"]])
    return acc.unmap_data(array)


@operation
def interop(world, step):
    """Change a device array on a stream of the program's own, between tasks on it."""
    array = world.slots[step["slot"]]
    if array is None:
        return "nothing there"
    ordered = [omp.inout(array)]
    inc = world.function("target", "inc").options(nowait=True, depend=ordered)
    inc(array)
    with omp.interop(depend=ordered, device=step["device"]) as used:
        if used.stream is not None:
            storage = array.unwrap()
            used.stream.launch(np.multiply, storage, 2, storage)
            used.stream.launch(np.remainder, storage, 4096, storage)
    inc(array)
    omp.taskwait()
    return used.stream is None


@operation
def buffers(world, step):
    """Use two buffers in turn, for copies there and back."""
    array, root = world.array(step["array"]), world.roots[step["array"]]
    with omp.buffers(2, 12, "f8", step["device"]) as pair:
        for number in range(3):
            ordered = [omp.inout(root, pair[number % 2])]
            omp.target_memcpy_async(pair[number % 2], array, depend=ordered)
            world.function("target", "inc").options(nowait=True, depend=ordered)(pair[number % 2])
            omp.target_memcpy_async(array, pair[number % 2], depend=ordered)
    return len(pair)


@operation
def acc_memory(world, step):
    """Allocate, copy and free by OpenACC's routines."""
    array, nbytes = world.item(step["item"]), world.view(step["item"]).nbytes
    made = acc.malloc(96)
    try:
        queue = 1 + world.first_queue
        if step["is_async"]:
            acc.memcpy_to_device_async(made, array, nbytes, queue)
            acc.memcpy_from_device_async(array, made, nbytes, queue)
            acc.wait(queue)
        else:
            acc.memcpy_to_device(made, array, nbytes)
            acc.memcpy_from_device(array, made, nbytes)
        return acc.is_present(array)
    finally:
        acc.free(made)
