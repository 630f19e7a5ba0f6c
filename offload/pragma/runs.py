"""The calls of the API that carry out directives: decorators, context managers, and directives that stand alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import offload
from offload import acc
from offload.constructs.waiting import barrier, taskwait
from offload.errors import DependError, UsageError
from offload.interrupts.frames import caller
from offload.pragma import teams
from offload.pragma.arguments import CallArgument, FixedArgument, valued, valued_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from offload.pragma.calls import DirectiveCall
    from offload.pragma.syntax import Directive

    Run = Callable[[DirectiveCall, dict[str, Any]], Any]

DEPENDENCES: Mapping[str, Callable[..., Any]] = {
    "in": offload.in_,
    "out": offload.out,
    "inout": offload.inout,
    "mutexinoutset": offload.mutexinoutset,
    "inoutset": offload.inoutset,
}
"""What makes a dependence of each type."""

MAPS: Mapping[str, Callable[..., Any]] = {
    "to": offload.to,
    "from": offload.from_,
    "tofrom": offload.tofrom,
    "alloc": offload.alloc,
    "release": offload.release,
    "delete": offload.delete,
}
"""What makes a map clause of each type."""

DECORATORS: Mapping[str, Callable[..., Any]] = {
    "target": offload.target,
    "task": offload.task,
    "taskloop": offload.taskloop,
    "taskgraph": offload.taskgraph,
    "target_loop": offload.target_loop,
    "parallel_loop": offload.parallel_loop,
    "acc.parallel": acc.parallel,
    "acc.kernels": acc.kernels,
    "acc.serial": acc.serial,
    "acc.parallel_loop": acc.parallel_loop,
    "acc.kernels_loop": acc.kernels_loop,
}
"""The decorators of constructs that have a body."""


# -- arguments in brackets after the words, and names that directives bind ---------------------------


def positional(directive: Directive) -> Iterator[CallArgument]:
    """Yield the arguments that stand in brackets after a directive's words."""
    key = directive.language, directive.name
    if key == ("acc", "wait"):
        for modifier in directive.arguments_modifiers:
            if modifier.name == "devnum" and modifier.argument is not None:
                yield valued("device", modifier.argument)
        if directive.arguments:
            yield valued_all("queues", [item.root for item in directive.arguments])
    elif key == ("omp", "depobj") and directive.clause("depend") is None:
        yield valued("object", directive.arguments[0].root)
    elif key == ("omp", "critical"):
        yield FixedArgument("critical", directive.arguments[0].name if directive.arguments else "")


def bound_names(directive: Directive) -> tuple[str, ...]:
    """Return the names that a directive binds to results, in order."""
    if directive.name == "depobj" and directive.clause("depend") is not None:
        return (directive.arguments[0].name,)
    words = {
        "interop": ("init",),
        "target data": ("use_device_ptr", "use_device_addr"),
        "host_data": ("use_device",),
    }.get(directive.name, ())
    return tuple([item.name for word in words for clause in directive.all(word) for item in clause.items])


# -- directives that stand alone ---------------------------------------------------------------------


def _called(function: Callable[..., Any]) -> Run:
    """Return the run of a directive that is one call with its keywords."""
    return lambda _, given: function(**given)


def _update(call: DirectiveCall, given: dict[str, Any]) -> Any:
    """Update; items with ``present`` are in a call of their own, which comes first."""
    present = {word: given.pop(f"{word} present") for word in ("to", "from_") if f"{word} present" in given}
    others = {word: given.pop(word) for word in ("to", "from_") if word in given}
    task = offload.target_update(**present, present=True, **given) if present else None
    return offload.target_update(**others, **given) if others else task


def _taskwait(call: DirectiveCall, given: dict[str, Any]) -> Any:
    return _waited(partial(taskwait, **given))


def _barrier(call: DirectiveCall, given: dict[str, Any]) -> Any:
    return _waited(barrier)


def _waited(wait: Callable[[], Any]) -> Any:
    """Wait; in a coroutine return a coroutine that waits, as `taskwait` does if the coroutine calls it itself."""
    import inspect

    flags = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
    return _awaited(wait) if caller().f_code.co_flags & flags else wait()


async def _awaited(wait: Callable[[], Any]) -> Any:
    return await wait()


def _cancel(call: DirectiveCall, given: dict[str, Any]) -> None:
    offload.cancel("taskgroup", **given)


def _cancellation_point(call: DirectiveCall, given: dict[str, Any]) -> None:
    offload.cancellation_point("taskgroup")


def _flush(call: DirectiveCall, given: dict[str, Any]) -> None:
    """Do nothing: memory is consistent wherever tasks are ordered."""


def _depobj(call: DirectiveCall, given: dict[str, Any]) -> Any:
    """Return a new depend object, change the dependence type of one, or destroy one."""
    if "depend" in given:
        (dependence,) = given["depend"]
        if not hasattr(dependence, "joins"):
            raise DependError("depobj: depend(depobj: …) cannot make another depend object; name the list items")
        return offload.depobj(dependence)
    held = given["object"]
    if not hasattr(held, "destroy") or not hasattr(held, "update"):
        name = call.directive.arguments[0].text
        raise DependError(
            f"depobj({name}): {type(held).__name__} {held!r:.60} is no depend object; make one with depend(…)"
        )
    if "update" in given:
        held.update(given["update"])
    else:
        held.destroy()
    return held


def _interop(call: DirectiveCall, given: dict[str, Any]) -> Any:
    """Begin the use of a stream, order it with tasks, or end its use."""
    if "init" in given:
        return offload.interop(**{word: given[word] for word in ("device", "depend") if word in given}).__enter__()
    word = "use" if "use" in given else "destroy"
    held = given[word]
    if not isinstance(held, offload.Interop):
        name = call.directive.clauses[0].items[0].text
        raise UsageError(
            f"interop {word}({name}): {type(held).__name__} {held!r:.60} is not in use; begin with init(targetsync: {name})"
        )
    if word == "use":
        held.use(given.get("depend"))
    else:
        if "depend" in given:
            held.use(given["depend"])
        held.__exit__(None, None, None)
    return held


# -- OpenACC's ---------------------------------------------------------------------------------------


def wait_on(waits: list[tuple[Any, ...]], queue: Any) -> None:
    """Wait for queues of other devices, as ``wait(devnum: d: queues: 1, 2)`` says, on the host or in a queue."""
    for device, *queues in waits:
        acc.wait(*queues, device=device, async_=queue)


def _queued(function: Callable[..., Any]) -> Run:
    """Return the run of a directive of OpenACC with queue clauses."""

    def run(call: DirectiveCall, given: dict[str, Any]) -> Any:
        return function(**call.replaced(given))

    return run


def _with_items(function: Callable[..., Any], *words: str) -> Run:
    """Return the run of a directive that does nothing without these clauses, whose others have no effect here."""

    def run(call: DirectiveCall, given: dict[str, Any]) -> Any:
        given = call.replaced(given)
        return function(**given) if any(word in given for word in words) else None

    return run


def _wait(call: DirectiveCall, given: dict[str, Any]) -> None:
    acc.wait(*given.pop("queues", ()), **given)


def _init(call: DirectiveCall, given: dict[str, Any]) -> None:
    if given.get("if_", True):
        kind = given.get("device_type", acc.device_default)
        acc.init(kind)
        if "device_num" in given:
            acc.set_device_num(given["device_num"], kind if "device_type" in given else acc.get_device_type())


def _shutdown(call: DirectiveCall, given: dict[str, Any]) -> None:
    if given.get("if_", True):
        acc.shutdown(given.get("device_type", acc.device_default))


def _set(call: DirectiveCall, given: dict[str, Any]) -> None:
    if not given.get("if_", True):
        return
    if "device_num" in given:
        acc.set_device_num(given["device_num"], given.get("device_type", acc.get_device_type()))
    elif "device_type" in given:
        acc.set_device_type(given["device_type"])
    if "default_async" in given:
        acc.set_default_async(given["default_async"])


RUNS: Mapping[str, Run] = {
    "target_enter_data": _called(offload.target_enter_data),
    "target_exit_data": _called(offload.target_exit_data),
    "target_update": _update,
    "taskwait": _taskwait,
    "taskyield": _called(offload.taskyield),
    "barrier": _barrier,
    "flush": _flush,
    "cancel_taskgroup": _cancel,
    "cancellation_point_taskgroup": _cancellation_point,
    "depobj": _depobj,
    "interop": _interop,
    "acc.enter_data": _with_items(acc.enter_data, "copyin", "create"),
    "acc.exit_data": _with_items(acc.exit_data, "copyout", "delete"),
    "acc.update": _queued(acc.update),
    "acc.wait": _wait,
    "acc.init": _init,
    "acc.shutdown": _shutdown,
    "acc.set": _set,
}
"""How a directive that stands alone is carried out."""


# -- blocks that stay --------------------------------------------------------------------------------


def _data(call: DirectiveCall, given: dict[str, Any]) -> Any:
    given = call.replaced(given)
    has_items = given.keys() - {"async_", "wait", "if_"}
    return acc.data(**given) if has_items else teams.unchanged()


MANAGERS: Mapping[str, Run] = {
    "target_data": _called(offload.target_data),
    "taskgroup": _called(offload.taskgroup),
    "acc.data": _data,
    "acc.host_data": _called(acc.host_data),
    "parallel": _called(teams.parallel),
    "parallel_masked": _called(teams.parallel_masked),
    "masked": _called(teams.masked),
    "single": _called(teams.single),
    "sections": _called(teams.sections),
    "parallel_sections": _called(teams.parallel_sections),
    "critical": lambda _, given: teams.critical(given["critical"]),
    "atomic": lambda _, given: teams.atomic(),
}
"""The context manager of each directive whose block stays."""
