"""The steps of programs that map, copy and change data, and target regions."""

from __future__ import annotations

import numpy as np

import offload as omp
from tests.differential.functions import Pair, Part, nothing
from tests.differential.world import BodyError, operation


def _maps(world, clauses):
    """Return map clauses, and the items whose storage they name."""
    made = []
    for kind, item, modifiers in clauses:
        function = getattr(omp, kind)
        made.append(function(world.item(item, is_clause=True), **dict.fromkeys(modifiers, True)))
    return made, [item for _, item, _ in clauses]


def _more(step):
    return {key: step[key] for key in ("if_", "device", "defaultmap", "priority", "name") if step.get(key) is not None}


@operation
def target(world, step):
    """Call a target function with views of arrays."""
    function = world.function("target", step["function"])
    clauses = {**_more(step), **world.deferral(step["items"])}
    if world.mode.mixture is not None and world.mode.mixture.has_tensors:
        clauses["arrays"] = "cupy"  # the bodies use functions that tensors lack
    if clauses:
        function = function.options(**clauses)
    views = [world.item(item) for item in step["items"]]
    if step["function"] == "keyword":
        return world.waited(function(x=views[0]))
    return world.waited(function(*views))


@operation
def enter(world, step):
    maps, items = _maps(world, step["maps"])
    clauses = {**step["where"], **_more(step), **world.deferral(items)}
    return world.waited(omp.target_enter_data(map=maps, **clauses))


@operation
def exit_(world, step):
    maps, items = _maps(world, step["maps"])
    clauses = {**step["where"], **_more(step), **world.deferral(items)}
    return world.waited(omp.target_exit_data(map=maps, **clauses))


@operation
def update(world, step):
    items = {key: [world.item(item, is_clause=True) for item in step[key]] for key in ("to", "from_")}
    clauses = {**step["where"], **_more(step), **world.deferral(step["to"] + step["from_"])}
    return world.waited(omp.target_update(**items, present=step["present"], **clauses))


@operation
def static(world, step):
    """Call a function without arguments, whose clauses name arrays; the same function each time."""
    which = step["which"]
    key = "static", which
    if key not in world.graphs or world.mode.is_cold:
        first, second = world.arrays[0], world.arrays[5]
        maps = (
            [omp.tofrom(first)],
            [omp.to(first), omp.tofrom(second, always=True)],
            [omp.alloc(second, present=True)],
        )
        world.graphs[key] = omp.target(map=maps[which])(nothing)
    function = world.graphs[key]
    clauses = world.deferral([[0, None], [5, None]])
    return world.waited((function.options(**clauses) if clauses else function)())


@operation
def pointer(world, step):
    """Look where an array is, and use its device array."""
    array, device = world.item(step["item"]), step["device"]
    found = omp.get_mapped_ptr(array, device)
    used = None if found is None else world.function("target", "total").options(device=device)(found)
    # On the host, an array is its own.
    return omp.target_is_present(array, device), "itself" if found is array else found, used


@operation
def drain(world, step):
    return world.drained(step["array"], step["device"])


@operation
def object_(world, step):
    """Use an object that has a mapper."""
    made, function = (Part, "part_of") if step["is_part"] else (Pair, "pair")
    # A mapper of parts slices, and bodies of objects use functions that tensors lack.
    pair = made(
        *(world.view(item) if step["is_part"] else world.item(item, may_be_tensor=False) for item in step["items"])
    )
    where = {} if step["device"] is None else {"device": step["device"]}
    match step["kind"]:
        case "target":
            return world.function("target", function).options(**where)(pair)
        case "enter":
            return omp.target_enter_data(map=[omp.to(pair)], **where)
        case "exit":
            return omp.target_exit_data(map=[omp.from_(pair)], **where)
        case "update":
            return omp.target_update(to=[pair], **where)
    with omp.target_data(map=[omp.tofrom(pair)], **where):
        return world.function("target", function).options(**where)(pair)


@operation
def block(world, step):
    """Carry out steps in a target_data region."""
    maps, items = _maps(world, step["maps"])
    clauses = {**step["where"], **_more(step)}
    if step["deferred"]:
        clauses |= {"nowait": True, "depend": [omp.inout(*world.storage(items))]}
    if step["addresses"]:
        clauses["use_device_addr"] = [world.item(item) for item in items]
    try:
        with omp.target_data(map=maps, **clauses) as addresses:
            if step["addresses"]:
                world.lines.append(f"addresses on a device: {[hasattr(address, 'unwrap') for address in addresses]}")
            if step["deferred"]:
                omp.taskwait()
            world.carry_out(step["steps"])
            if step["raises"]:
                raise BodyError("a block fails")
    finally:
        if step["deferred"]:
            omp.taskwait()
    return "left"


@operation
def default(world, step):
    omp.set_default_device(step["device"])
    return omp.get_default_device()


# -- host arrays ---------------------------------------------------------------------------------------
@operation
def host(world, step):
    world.arrays[step["array"]] += step["value"]


@operation
def reshape(world, step):
    world.arrays[step["array"]].shape = tuple(step["shape"])


@operation
def retype(world, step):
    world.arrays[step["array"]].dtype = np.dtype(step["dtype"])


@operation
def protect(world, step):
    world.arrays[step["array"]].flags.writeable = step["is_writeable"]


# -- errors --------------------------------------------------------------------------------------------
@operation
def wrong(world, step):
    """Write something that is an error in any program, or most."""
    x, inc = world.view(step["item"]), world.function("target", "inc")
    calls = [
        lambda: inc.options(maps=[omp.to(x)]),
        lambda: inc.options(device="first")(x),
        lambda: omp.target_enter_data(map=[omp.from_(x), omp.to("x")]),
        lambda: omp.target_exit_data(map=[omp.alloc(x)]),
        omp.target_update,
        lambda: omp.target_update(to=[x], from_=[x]),
        lambda: omp.target(map=[omp.to("missing")])(nothing)(x),
        lambda: inc.options(defaultmap="none")(x),
        lambda: inc.options(depend=[omp.inout(x[::1])], nowait=False, priority=-1)(x),
        omp.target_data(map=[]).__enter__,
        lambda: inc(x, x),
        inc,
        lambda: inc.options(is_device_ptr=["x"])(x),
        lambda: omp.target_memcpy(x, world.slots[0], nbytes=1 << 20),
    ]
    return calls[step["which"]]()
