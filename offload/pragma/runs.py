"""The calls of the API that carry out directives: decorators, context managers, and directives that stand alone."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import offload
from offload import acc
from offload.constructs.clauses.dependences import DepObj
from offload.errors import DependError, UsageError
from offload.pragma import teams
from offload.pragma.call_arguments import CallArgument, FixedArgument, valued, valued_all
from offload.pragma.items import UNBOUND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from offload.pragma.syntax import Directive

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
        yield valued("held", directive.arguments[0].root)
    elif key == ("omp", "critical"):
        yield FixedArgument("name", directive.arguments[0].name if directive.arguments else "")


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


def _target_update(**given: Any) -> Any:
    """Update; items with ``present`` are in a call of their own, which comes first."""
    present = {word: given.pop(f"{word} present") for word in ("to", "from_") if f"{word} present" in given}
    others = {word: given.pop(word) for word in ("to", "from_") if word in given}
    task = offload.target_update(**present, present=True, **given) if present else None
    return offload.target_update(**others, **given) if others else task


def _flush() -> None:
    """Do nothing: memory is consistent wherever tasks are ordered."""


def _depobj(depend: Any = (), held: Any = None, update: str = "", destroy: bool = False) -> Any:
    """Return a new depend object, change the dependence type of one, or destroy one."""
    if depend:
        return offload.depobj(*depend)
    if not isinstance(held, DepObj):
        raise DependError(
            f"depobj: {type(held).__name__} {held!r:.60} is no depend object; make one with depobj(o) depend(…)"
        )
    if destroy:
        held.destroy()
    else:
        held.update(update)
    return held


def _interop(
    init: Any = None, use: Any = UNBOUND, destroy: Any = UNBOUND, depend: Any = None, device: Any = None
) -> Any:
    """Begin the use of a stream, order it with tasks, or end its use."""
    if init is not None:
        return offload.interop(device=device, depend=() if depend is None else depend).__enter__()
    held = use if use is not UNBOUND else destroy
    if not isinstance(held, offload.Interop):
        raise UsageError(
            f"interop: {type(held).__name__} {held!r:.60} is no interop object; make one with init(targetsync: o)"
        )
    if use is not UNBOUND or depend is not None:
        held.use(depend)
    if use is UNBOUND:
        held.__exit__(None, None, None)
    return held


# -- OpenACC's ---------------------------------------------------------------------------------------


def wait_on(waits: list[tuple[Any, ...]], queue: Any) -> None:
    """Wait for queues of other devices, as ``wait(devnum: d: queues: 1, 2)`` says, on the host or in a queue."""
    for device, *queues in waits:
        acc.wait(*queues, device=device, async_=queue)


def _enter_data(**given: Any) -> Any:
    has_items = given.keys() & {"copyin", "create"}  # ``attach`` has no effect: objects here have no pointers
    return acc.enter_data(**given) if has_items else None


def _exit_data(**given: Any) -> Any:
    has_items = given.keys() & {"copyout", "delete"}
    return acc.exit_data(**given) if has_items else None


def _wait(queues: Any = (), **given: Any) -> None:
    acc.wait(*queues, **given)


def _init(if_: Any = True, device_type: Any = acc.device_default, device_num: Any = None) -> None:
    if if_:
        acc.init(device_type)
        if device_num is not None:
            acc.set_device_num(device_num, acc.get_device_type())


def _shutdown(if_: Any = True, device_type: Any = acc.device_default, **_device_num: Any) -> None:
    if if_:  # the routine waits for all devices of the type
        acc.shutdown(device_type)


def _set(if_: Any = True, device_type: Any = None, device_num: Any = None, default_async: Any = None) -> None:
    if not if_:
        return
    if device_num is not None:
        acc.set_device_num(device_num, acc.get_device_type() if device_type is None else device_type)
    elif device_type is not None:
        acc.set_device_type(device_type)
    if default_async is not None:
        acc.set_default_async(default_async)


RUNS: Mapping[str, Callable[..., Any]] = {
    "target_enter_data": offload.target_enter_data,
    "target_exit_data": offload.target_exit_data,
    "target_update": _target_update,
    "taskwait": offload.taskwait,
    "taskyield": offload.taskyield,
    "barrier": offload.barrier,
    "flush": _flush,
    "cancel_taskgroup": partial(offload.cancel, "taskgroup"),
    "cancellation_point_taskgroup": partial(offload.cancellation_point, "taskgroup"),
    "depobj": _depobj,
    "interop": _interop,
    "acc.enter_data": _enter_data,
    "acc.exit_data": _exit_data,
    "acc.update": acc.update,
    "acc.wait": _wait,
    "acc.init": _init,
    "acc.shutdown": _shutdown,
    "acc.set": _set,
}
"""The call that carries out a directive that stands alone."""


# -- blocks that stay --------------------------------------------------------------------------------


def _data(**given: Any) -> AbstractContextManager[Any]:
    has_items = given.keys() - {"async_", "wait", "if_"}
    return acc.data(**given) if has_items else nullcontext()


MANAGERS: Mapping[str, Callable[..., Any]] = {
    "target_data": offload.target_data,
    "taskgroup": offload.taskgroup,
    "acc.data": _data,
    "acc.host_data": acc.host_data,
    "parallel": teams.parallel,
    "parallel_masked": teams.parallel_masked,
    "masked": teams.masked,
    "single": teams.single,
    "sections": teams.sections,
    "parallel_sections": teams.parallel_sections,
    "critical": teams.critical,
    "atomic": teams.atomic,
}
"""The context manager of each directive whose block stays."""
