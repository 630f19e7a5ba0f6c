"""The keyword arguments that each clause of a directive becomes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import offload
from offload.pragma.call_arguments import (
    CallArgument,
    DependArgument,
    FixedArgument,
    ItemsArgument,
    ItemsWay,
    NameArgument,
    ReductionArgument,
    Setting,
    SeveralArgument,
    valued,
    valued_all,
)
from offload.pragma.items import event_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offload.pragma.syntax import Clause

    Translation = Callable[[Clause, Setting], Iterable[CallArgument]]

DEPENDENCES: Final[Mapping[str, Callable[..., Any]]] = {
    "in": offload.in_,
    "out": offload.out,
    "inout": offload.inout,
    "mutexinoutset": offload.mutexinoutset,
    "inoutset": offload.inoutset,
}
"""What makes a dependence of each type."""

MAPS: Final[Mapping[str, Callable[..., Any]]] = {
    "to": offload.to,
    "from": offload.from_,
    "tofrom": offload.tofrom,
    "alloc": offload.alloc,
    "release": offload.release,
    "delete": offload.delete,
}
"""What makes a map clause of each type."""


def translated(clause: Clause, key: str, setting: Setting) -> Iterable[CallArgument]:
    """Return the arguments of a clause of the construct with a key."""
    translate = OF_CONSTRUCTS.get(key, {}).get(clause.name) or TRANSLATIONS[clause.name]
    return translate(clause, setting)


# -- kinds of clauses --------------------------------------------------------------------------------


def _nothing(_clause: Clause, _setting: Setting) -> list[CallArgument]:
    return []


def _value(keyword: str, change: Callable[[Any], Any] | None = None) -> Translation:
    """Return the translation of a clause with one expression."""
    return lambda clause, _: [valued(keyword, clause.expressions[0], change)]


def _flag(keyword: str) -> Translation:
    """Return the translation of a clause that stands for True unless an expression says otherwise."""

    def translate(clause: Clause, _setting: Setting) -> list[CallArgument]:
        if clause.expressions:
            return [valued(keyword, clause.expressions[0], bool)]
        return [FixedArgument(keyword, value=True)]

    return translate


def _level(keyword: str) -> Translation:
    """Return the translation of a clause that stands for True, or for a size."""

    def translate(clause: Clause, _setting: Setting) -> list[CallArgument]:
        if clause.expressions:
            return [valued(keyword, clause.expressions[0])]
        return [FixedArgument(keyword, value=True)]

    return translate


def _word(keyword: str) -> Translation:
    return lambda clause, _: [FixedArgument(keyword, clause.kind)]


def _names(keyword: str) -> Translation:
    """Return the translation of a clause of a loop function, which takes the names of its variables."""
    return lambda clause, _: [FixedArgument(keyword, [item.name for item in clause.items])]


def _items(keyword: str, *, optional: bool | None = None) -> Translation:
    return lambda clause, setting: [ItemsArgument(keyword, clause, setting, optional=optional)]


def _reduction(keyword: str, *, optional: bool | None = None) -> Translation:
    return lambda clause, setting: [ReductionArgument(keyword, clause, setting, optional=optional)]


def _loop_reduction(clause: Clause, _setting: Setting) -> list[CallArgument]:
    return [FixedArgument("reduction", {clause.kind: [item.name for item in clause.items]})]


def _depend(clause: Clause, _setting: Setting) -> list[CallArgument]:
    return [DependArgument((clause,))]


def _map(clause: Clause, setting: Setting) -> list[CallArgument]:
    kind = clause.kind
    flags: dict[str, Any] = {word: True for word in ("always", "present", "close") if clause.has(word)}
    for modifier in clause.modifiers:
        if modifier.name == "mapper" and modifier.argument is not None and modifier.argument.text != "default":
            flags["mapper"] = modifier.argument.text
    if not kind and not flags:  # the construct's default
        make: Callable[[list[Any]], Any] = list
    else:
        make = partial(_map_clause, MAPS[kind or "tofrom"], flags)
    # A number in `from` or `tofrom` is a variable that receives its last value.
    return [ItemsArgument("map", clause, setting, make, optional=kind in ("from", "tofrom", ""))]


def _map_clause(make: Callable[..., Any], flags: dict[str, Any], items: list[Any]) -> list[Any]:
    return [make(*items, **flags)]


def _data(keyword: str) -> Translation:
    """Return the translation of a data clause of OpenACC."""

    def translate(clause: Clause, setting: Setting) -> list[CallArgument]:
        make: Callable[[list[Any]], Any] = _zeroed if clause.has("zero") else list
        # A number in `copy` or `copyout` is a variable that receives its last value.
        optional = None if keyword == "deviceptr" else keyword in ("copy", "copyout")
        return [ItemsArgument(keyword, clause, setting, make, optional=optional)]

    return translate


def _zeroed(items: list[Any]) -> list[Any]:
    from offload.pragma.acc_runs import zeroed  # only OpenACC has it

    return zeroed(items)


def _moved(keyword: str) -> Translation:
    """Return the translation of ``to`` and ``from`` of an update; the items with ``present`` are apart."""

    def translate(clause: Clause, setting: Setting) -> list[CallArgument]:
        word = f"{keyword} present" if clause.has("present") else keyword
        return [ItemsArgument(word, clause, setting)]

    return translate


def _split(keyword: str) -> Translation:
    def translate(clause: Clause, _setting: Setting) -> list[CallArgument]:
        found: list[CallArgument] = [valued(keyword, clause.expressions[0])]
        return [*found, FixedArgument("strict", value=True)] if clause.has("strict") else found

    return translate


def _defaultmap(clause: Clause, _setting: Setting) -> list[CallArgument]:
    category = next((modifier.name for modifier in clause.modifiers), "")
    return [FixedArgument("defaultmap", {category: clause.kind} if category else clause.kind)]


def _detach(clause: Clause, setting: Setting) -> list[CallArgument]:
    if setting.way is ItemsWay.FUNCTION:
        return [valued("detach", clause.items[0].root)]
    return [_EventArgument("detach", clause.items[0].name)]


class _EventArgument(NameArgument):
    """The event of ``detach``."""

    __slots__ = ()

    def value(self, evaluated: Any, left_out: frozenset[str]) -> Any:
        return event_for(evaluated)


def _schedule(clause: Clause, _setting: Setting) -> list[CallArgument]:
    if clause.kind in ("auto", "runtime"):
        return []
    if clause.expressions:
        kind = clause.kind
        return [valued("schedule", clause.expressions[0], lambda size: (kind, size))]
    return [FixedArgument("schedule", clause.kind)]


def _wait(clause: Clause, _setting: Setting) -> list[CallArgument]:
    """Translate a wait clause; queues of another device are waited for before the construct."""
    device = next((modifier.argument for modifier in clause.modifiers if modifier.name == "devnum"), None)
    if device is not None:
        # No keyword of a construct: `DirectiveCall.replaced` takes it out.
        return [SeveralArgument("wait_on", (device, *clause.expressions), lambda values: [values])]
    if not clause.expressions:
        return [FixedArgument("wait", value=True)]
    return [valued_all("wait", clause.expressions)]


def _device_type(clause: Clause, _setting: Setting) -> list[CallArgument]:
    return [FixedArgument("device_type", "default" if clause.kind == "*" else clause.kind)]


_VALUES: Final = (
    "priority final graph_id filter collapse num_threads num_teams thread_limit num_gangs num_workers vector_length "
    "default_async device_num"
)
_WITHOUT_EFFECT: Final = (
    "affinity untied mergeable hint read write capture compare seq_cst acq_rel acquire release relaxed weak shared "
    "default order bind copyprivate proc_bind dist_schedule safelen simdlen aligned nontemporal attach"
)

TRANSLATIONS: Final[Mapping[str, Translation]] = {
    "map": _map,
    "to": _moved("to"),
    "from": _moved("from_"),
    "depend": _depend,
    "private": _items("private", optional=True),
    "firstprivate": _items("firstprivate"),
    "lastprivate": _names("lastprivate"),
    "use_device_ptr": _items("use_device_ptr"),
    "use_device_addr": _items("use_device_addr"),
    "is_device_ptr": _items("is_device_ptr"),
    "has_device_addr": _items("has_device_addr"),
    "detach": _detach,
    "reduction": _reduction("reduction", optional=True),
    "in_reduction": _reduction("in_reduction"),
    "task_reduction": _reduction("task_reduction"),
    "if": _value("if_"),
    "device": _value("device"),
    "grainsize": _split("grainsize"),
    "num_tasks": _split("num_tasks"),
    "nowait": _flag("nowait"),
    "nogroup": _flag("nogroup"),
    "graph_reset": _flag("graph_reset"),
    "defaultmap": _defaultmap,
    "schedule": _schedule,
    "init": _names("init"),
    "update": _word("update"),
    **{word: _value(word) for word in _VALUES.split()},
    **dict.fromkeys(_WITHOUT_EFFECT.split(), _nothing),
    **{
        word: _data(word)
        for word in ("copy", "copyin", "copyout", "create", "present", "no_create", "deviceptr", "delete")
    },
    "use_device": _items("use_device"),
    "async": _level("async_"),
    "wait": _wait,
    "self": _level("self_"),
    **{word: _flag(word) for word in ("finalize", "if_present", "seq", "independent", "auto")},
    **{word: _level(word) for word in ("gang", "worker", "vector")},
    "tile": lambda clause, _: [valued_all("tile", clause.expressions, tuple)],
    "device_type": _device_type,
}
"""The arguments of each clause."""

_OWN_VARIABLES: Mapping[str, Translation] = dict.fromkeys(("private", "firstprivate", "shared", "default"), _nothing)
"""Clauses that the rewriting of a block carries out."""

_OF_LOOPS: Mapping[str, Translation] = {
    "private": _names("private"),
    "firstprivate": _names("firstprivate"),
    "reduction": _loop_reduction,
}

_OF_INTEROP: Mapping[str, Translation] = {
    "use": lambda clause, _: [valued("use", clause.items[0].root)],
    "destroy": lambda clause, _: [valued("destroy", clause.items[0].root)],
}


OF_CONSTRUCTS: Final[Mapping[str, Mapping[str, Translation]]] = {
    "task": _OWN_VARIABLES,
    "taskloop": _OWN_VARIABLES,
    "parallel": _OWN_VARIABLES,
    "parallel_masked": _OWN_VARIABLES,
    "parallel_sections": _OWN_VARIABLES,
    "single": _OWN_VARIABLES,
    "target_loop": _OF_LOOPS,
    "parallel_loop": _OF_LOOPS,
    "acc.parallel_loop": {**_OF_LOOPS, "default": _word("default")},
    "acc.kernels_loop": {**_OF_LOOPS, "default": _word("default")},
    **{f"acc.{word}": {"default": _word("default")} for word in ("parallel", "kernels", "serial")},
    "acc.update": {"self": _items("self_"), "device": _items("device")},
    "acc.exit_data": {"detach": _nothing},
    "atomic": {"update": _nothing},
    "depobj": {"destroy": lambda *_: [FixedArgument("destroy", value=True)]},
    "interop": _OF_INTEROP,
}
"""The clauses that a construct takes in another way than `TRANSLATIONS` says."""
