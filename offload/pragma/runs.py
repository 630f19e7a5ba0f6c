"""The calls of the API that carry out directives: decorators, context managers, and directives that stand alone.

OpenACC's are in `acc_runs`, so programs without OpenACC do not import `offload.acc`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import offload
from offload.constructs.clauses.dependences import DepObj
from offload.errors import DependError, UsageError
from offload.pragma import teams
from offload.pragma.call_arguments import CallArgument, FixedArgument, valued, valued_all
from offload.pragma.items import UNBOUND
from offload.pragma.states import ResultTarget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from offload.constructs.target import TargetFunction
    from offload.pragma.syntax import Directive

DECORATORS: Mapping[str, Callable[..., Any]] = {
    "target": offload.target,
    "task": offload.task,
    "taskloop": offload.taskloop,
    "taskgraph": offload.taskgraph,
    "target_loop": offload.target_loop,
    "parallel_loop": offload.parallel_loop,
}
"""The decorators of constructs that have a body."""

RESULTS: Mapping[str, type[TargetFunction]] = {"target": ResultTarget}
"""The construct of a block with results."""


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
}
"""The call that carries out a directive that stands alone."""


# -- blocks that stay --------------------------------------------------------------------------------


MANAGERS: Mapping[str, Callable[..., Any]] = {
    "target_data": offload.target_data,
    "taskgroup": offload.taskgroup,
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
