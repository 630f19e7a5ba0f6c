"""A parsed directive as the call of the API that it stands for.

Theory of operation
-------------------
`TRANSLATIONS` says for each clause which keyword arguments it becomes; `_OF_CONSTRUCTS` has the clauses that a construct
takes in another way. `DirectiveCall` makes the arguments once. What the string alone decides goes to the construct once
(`decorate`). The other arguments have expressions; `values` makes one tuple of them, which the rewritten function
evaluates where the directive stands, in the order of the string. `encounter`, `manage` and `run` take that tuple.

If a block names arrays in data clauses, the first element of the tuple tells whether all of these names hold NumPy
arrays, as nearly always: it is None then, and their clauses are as they were given once.
"""

from __future__ import annotations

import ast
from functools import partial
from typing import TYPE_CHECKING, Any

from offload import acc
from offload.arrays.items import SCALARS
from offload.pragma import runs
from offload.pragma.arguments import (
    CallArgument,
    DependArgument,
    FixedArgument,
    ItemsArgument,
    NameArgument,
    ReductionArgument,
    Setting,
    Way,
    is_static,
    merged,
    valued,
    valued_all,
    written_item,
)
from offload.pragma.items import UNBOUND, event_for, is_mappable
from offload.pragma.tables import Form, row_of
from offload.pragma.values import looked_up, tuple_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload.pragma.arguments import OptionalName
    from offload.pragma.items import MappedPart
    from offload.pragma.syntax import Clause, Directive
    from offload.pragma.values import Naming

    Translation = Callable[[Clause, Setting], Iterable[CallArgument]]


class DirectiveCall:
    """How a directive becomes a call of the API; made once for each directive of a function.

    Parameters
    ----------
    directive : Directive
        The parsed string.
    parameters : frozenset of str, optional
        Given for ``@omp("…")`` over a ``def``: the parameters of the decorated function.

    Attributes
    ----------
    form : Form
        How the directive is written.
    named : tuple of str
        The names that the construct's clauses write as strings. The function of a block needs parameters of these names.
    binds : tuple of str
        The names to which results are bound, in order: the result of `run` (of ``depobj(o)`` and ``interop``), or the
        elements of the tuple that the block of `manage` gives.
    events : tuple of str
        The names in ``detach``. Bind each to `items.event_for` of its value before `values` is evaluated.
    reductions : tuple of (str, str)
        Operators and names of ``reduction``.
    """

    __slots__ = (
        "_arguments", "_optional", "_parts", "_passes_depend", "_places", "_varying", "binds", "directive", "events", "form",
        "key", "named", "reductions",
    )  # fmt: skip

    def __init__(self, directive: Directive, parameters: frozenset[str] | None = None) -> None:
        self.directive = directive
        self.form = row_of(directive).form
        self.key = _key_of(directive)
        setting = Setting(_way_of(self.form) if parameters is None else Way.FUNCTION, parameters or frozenset())
        self._arguments = tuple(_arguments_of(directive, self.key, setting))
        # the arguments that have an expression, by their place in the tuple of `values`
        optional = {one.name: one for argument in self._arguments for one in argument.optional}
        self._optional: tuple[OptionalName, ...] = tuple(optional.values())
        first = 1 if self._optional else 0
        evaluated = [argument for argument in self._arguments if argument.is_evaluated]
        self._places = {id(argument): first + at for at, argument in enumerate(evaluated)}
        # the keywords whose values differ from one encounter to the next
        self._varying = frozenset(argument.keyword for argument in evaluated)
        self._passes_depend = len(evaluated) == 1 and self._varying == {"depend"}
        self._parts = [
            argument for argument in evaluated if isinstance(argument, ItemsArgument) and setting.way is Way.BLOCK
        ]
        self.named = tuple(dict.fromkeys(name for argument in self._arguments for name in argument.named))
        self.binds = runs.bound_names(directive)
        self.events = tuple([item.name for clause in directive.all("detach") for item in clause.items])
        self.events = self.events if self.key == "task" else ()
        self.reductions = tuple(
            [(clause.kind, item.name) for clause in directive.all("reduction") for item in clause.items if item.is_name]
        )

    # -- values ------------------------------------------------------------------------------------------
    def values(self, naming: Naming) -> ast.expr:
        """Return an expression for a tuple of all that clauses evaluate where the directive stands."""
        found = [argument.expression(naming) for argument in self._arguments if argument.is_evaluated]
        return tuple_of([self._captured(naming), *found] if self._optional else found)

    def _captured(self, naming: Naming) -> ast.expr:
        """Return an expression for the values of the optional names; for None if all hold NumPy arrays."""
        kinds: list[ast.expr] = [
            ast.Compare(
                ast.Attribute(naming.read(one.name), "__class__", ast.Load()),
                [ast.Is()],
                [looked_up(naming, "ndarray")],
            )
            for one in self._optional
        ]
        are_arrays = kinds[0] if len(kinds) == 1 else ast.BoolOp(ast.And(), kinds)
        return ast.IfExp(are_arrays, ast.Constant(None), tuple_of([naming.read(one.name) for one in self._optional]))

    def left_out(self, values: Sequence[Any]) -> frozenset[str]:
        """Return the names in data clauses, and in reductions, whose values are numbers or the like, or are unbound.

        The call has no clause for them.
        """
        if not self._optional or values[0] is None:
            return _NONE
        pairs = zip(self._optional, values[0], strict=True)
        return frozenset([one.name for one, value in pairs if _does_not_fit(value, is_strict=one.is_strict)])

    def parts(self, values: Sequence[Any]) -> list[MappedPart]:
        """Return the list items with subscripts or members in the data clauses of a block, in the order of the string."""
        return [part for one in self._parts for part in one.parts(values[self._places[id(one)]])]

    # -- keyword arguments -------------------------------------------------------------------------------
    def keywords(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the keyword clauses of the call, given the values of the expression of `values`."""
        return self._given(values, self.left_out(values), None)

    def _given(self, values: Sequence[Any], left_out: frozenset[str], only: frozenset[str] | None) -> dict[str, Any]:
        """Return the keyword arguments, ``only`` those of these keywords."""
        given: dict[str, Any] = {}
        for argument in self._arguments:
            if only is not None and argument.keyword not in only:
                continue
            place = self._places.get(id(argument))
            merged(given, argument.keyword, argument.value(None if place is None else values[place], left_out))
        if only is None:  # else a construct has another value of the clause, which an empty one replaces
            given = {word: value for word, value in given.items() if not _is_empty(value)}
        return given

    def _fixed(self) -> dict[str, Any]:
        """Return the keyword arguments that the string alone decides."""
        fixed: dict[str, Any] = {}
        for argument in self._arguments:
            if argument.keyword not in self._varying:
                merged(fixed, argument.keyword, argument.value(None, _NONE))
        return fixed

    @property
    def is_fixed(self) -> bool:
        """Whether the construct that `decorate` makes has all clauses, so that nothing is evaluated at a call."""
        return not (self._varying or self._optional)

    # -- calls -------------------------------------------------------------------------------------------
    def decorate(self, function: Callable[..., Any]) -> Any:
        """Return a function under the construct, with the clauses that the string alone decides."""
        return runs.DECORATORS[self.key](**{**runs.EXTRA.get(self.key, {}), **self._fixed()})(function)

    def encounter(self, construct: Any, values: Sequence[Any]) -> Any:
        """Return the construct that `decorate` has made with the clauses of an encounter; a call of it encounters it."""
        if not self._optional or values[0] is None:
            if self._passes_depend:
                return construct.options(depend=values[-1])
            if not self._varying:
                return construct
            return construct.options(**self.replaced(self._given(values, _NONE, self._varying)))
        left_out = self.left_out(values)
        if not left_out:
            words = self._varying
        else:
            words = self._varying.union(
                [
                    argument.keyword
                    for argument in self._arguments
                    if any(one.name in left_out for one in argument.optional)
                ]
            )
        return construct.options(**self.replaced(self._given(values, left_out, words))) if words else construct

    def replaced(self, given: dict[str, Any]) -> dict[str, Any]:
        """Carry out the clauses that no keyword of the construct stands for; return the others."""
        waits = given.pop("wait_on", None)
        if waits is not None:
            runs.wait_on(waits, given.get("async_"))
        return given

    def manage(self, values: Sequence[Any]) -> Any:
        """Return the context manager of a directive whose block stays."""
        return runs.MANAGERS[self.key](self, self.keywords(values))

    def run(self, values: Sequence[Any]) -> Any:
        """Carry out a directive that stands alone; return the object that a name is to be bound to, or the task."""
        return runs.RUNS[self.key](self, self.keywords(values))


_NONE: frozenset[str] = frozenset()


def _key_of(directive: Directive) -> str:
    """Return the key of a directive in the tables of this file and of `runs`: the construct, or the directive's name."""
    row = row_of(directive)
    if row.form in (Form.NEST, Form.INNER, Form.SECTION):
        return row.stands_for
    name = directive.name.replace(" ", "_")
    return f"acc.{name}" if directive.language == "acc" else name


def _way_of(form: Form) -> Way:
    return Way.IN_PLACE if form in (Form.STAYS, Form.ALONE) else Way.BLOCK


def _is_empty(value: Any) -> bool:
    return value.__class__ in (list, dict, tuple) and not value


def _does_not_fit(value: Any, *, is_strict: bool) -> bool:
    if is_strict:
        return not is_mappable(value)
    return value is UNBOUND or value.__class__ in SCALARS


def _arguments_of(directive: Directive, key: str, setting: Setting) -> list[CallArgument]:
    """Return the arguments of the call, in the order of the string."""
    special = _OF_CONSTRUCTS.get(key, {})
    found: list[CallArgument] = list(runs.positional(directive))
    for clause in directive.clauses:
        translate = special.get(clause.name) or TRANSLATIONS[clause.name]
        for argument in translate(clause, setting):
            last = found[-1] if found else None
            if isinstance(argument, DependArgument) and isinstance(last, DependArgument):
                found[-1] = DependArgument((*last.clauses, *argument.clauses))
            else:
                found.append(argument)
    if setting.way is Way.FUNCTION:
        _write_dependences(found, setting)
    if key == "acc.parallel_loop" and directive.name == "serial loop":
        found.append(FixedArgument("seq", value=True))
    if key == "parallel_loop" and directive.name == "simd":
        found.append(FixedArgument("num_threads", 1))
    return found


def _write_dependences(found: list[CallArgument], setting: Setting) -> None:
    """Write the dependences of a decorated function as the API does, if strings mean the same."""
    clauses = [clause for one in found if isinstance(one, DependArgument) for clause in one.clauses]
    if clauses and all(
        clause.kind != "depobj"
        and not clause.iterators
        and all(is_static(item, setting.parameters) for item in clause.items)
        for clause in clauses
    ):
        made = [runs.DEPENDENCES[clause.kind](*map(written_item, clause.items)) for clause in clauses]
        at = next(at for at, one in enumerate(found) if isinstance(one, DependArgument))
        found[at] = FixedArgument("depend", made)
        found[:] = [one for one in found if not isinstance(one, DependArgument)]


# -- the clauses -------------------------------------------------------------------------------------


def _nothing(clause: Clause, setting: Setting) -> list[CallArgument]:
    return []


def _value(keyword: str, change: Callable[[Any], Any] | None = None) -> Translation:
    """Return the translation of a clause with one expression."""
    return lambda clause, _: [valued(keyword, clause.expressions[0], change)]


def _flag(keyword: str) -> Translation:
    """Return the translation of a clause that stands for True unless an expression says otherwise."""

    def translate(clause: Clause, setting: Setting) -> list[CallArgument]:
        if clause.expressions:
            return [valued(keyword, clause.expressions[0], bool)]
        return [FixedArgument(keyword, value=True)]

    return translate


def _level(keyword: str) -> Translation:
    """Return the translation of a clause that stands for True, or for a size."""

    def translate(clause: Clause, setting: Setting) -> list[CallArgument]:
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


def _loop_reduction(clause: Clause, setting: Setting) -> list[CallArgument]:
    return [FixedArgument("reduction", {clause.kind: [item.name for item in clause.items]})]


def _depend(clause: Clause, setting: Setting) -> list[CallArgument]:
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
        make = partial(_map_clause, runs.MAPS[kind or "tofrom"], flags)
    # A number in `from` or `tofrom` is a variable that receives its last value.
    return [ItemsArgument("map", clause, setting, make, optional=kind in ("from", "tofrom", ""))]


def _map_clause(make: Callable[..., Any], flags: dict[str, Any], items: list[Any]) -> list[Any]:
    return [make(*items, **flags)]


def _data(keyword: str) -> Translation:
    """Return the translation of a data clause of OpenACC."""

    def translate(clause: Clause, setting: Setting) -> list[CallArgument]:
        make: Callable[[list[Any]], Any] = _zeroed if clause.has("zero") else list
        return [ItemsArgument(keyword, clause, setting, make, optional=keyword in ("copy", "copyout"))]

    return translate


def _zeroed(items: list[Any]) -> list[Any]:
    return [acc.zero(*items)]


def _moved(keyword: str) -> Translation:
    """Return the translation of ``to`` and ``from`` of an update; the items with ``present`` are apart."""

    def translate(clause: Clause, setting: Setting) -> list[CallArgument]:
        word = f"{keyword} present" if clause.has("present") else keyword
        return [ItemsArgument(word, clause, setting)]

    return translate


def _split(keyword: str) -> Translation:
    def translate(clause: Clause, setting: Setting) -> list[CallArgument]:
        found: list[CallArgument] = [valued(keyword, clause.expressions[0])]
        return [*found, FixedArgument("strict", value=True)] if clause.has("strict") else found

    return translate


def _defaultmap(clause: Clause, setting: Setting) -> list[CallArgument]:
    category = next((modifier.name for modifier in clause.modifiers), "")
    return [FixedArgument("defaultmap", {category: clause.kind} if category else clause.kind)]


def _detach(clause: Clause, setting: Setting) -> list[CallArgument]:
    if setting.way is Way.FUNCTION:
        return [valued("detach", clause.items[0].root)]
    return [_EventArgument("detach", clause.items[0].name)]


class _EventArgument(NameArgument):
    """The event of ``detach``."""

    __slots__ = ()

    def value(self, evaluated: Any, left_out: frozenset[str]) -> Any:
        return event_for(evaluated)


def _schedule(clause: Clause, setting: Setting) -> list[CallArgument]:
    if clause.kind in ("auto", "runtime"):
        return []
    if clause.expressions:
        kind = clause.kind
        return [valued("schedule", clause.expressions[0], lambda size: (kind, size))]
    return [FixedArgument("schedule", clause.kind)]


def _wait(clause: Clause, setting: Setting) -> list[CallArgument]:
    """Translate a wait clause; queues of another device are waited for before the construct."""
    device = next((modifier.argument for modifier in clause.modifiers if modifier.name == "devnum"), None)
    if device is not None:
        return [valued_all("wait_on", (device, *clause.expressions), lambda values: [tuple(values)])]
    if not clause.expressions:
        return [FixedArgument("wait", value=True)]
    return [valued_all("wait", clause.expressions)]


def _device_type(clause: Clause, setting: Setting) -> list[CallArgument]:
    return [FixedArgument("device_type", clause.kind)]


TRANSLATIONS: Mapping[str, Translation] = {
    "map": _map,
    "to": _moved("to"),
    "from": _moved("from_"),
    "depend": _depend,
    "affinity": _nothing,
    "private": _items("private", optional=True),
    "firstprivate": _items("firstprivate", optional=True),
    "lastprivate": _names("lastprivate"),
    "shared": _nothing,
    "use_device_ptr": _items("use_device_ptr"),
    "use_device_addr": _items("use_device_addr"),
    "is_device_ptr": _items("is_device_ptr"),
    "has_device_addr": _items("has_device_addr"),
    "copyprivate": _nothing,
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
    "default": _nothing,
    "defaultmap": _defaultmap,
    "schedule": _schedule,
    "order": _nothing,
    "bind": _nothing,
    "init": _names("init"),
    "update": _word("update"),
    **{
        word: _value(word)
        for word in (
            "priority", "final", "graph_id", "filter", "collapse", "num_threads", "num_teams", "thread_limit", "num_gangs",
            "num_workers", "vector_length", "default_async", "device_num",
        )
    },
    **dict.fromkeys(
        (
            "safelen", "simdlen", "hint", "untied", "mergeable", "read", "write", "capture", "compare", "seq_cst", "acq_rel",
            "acquire", "release", "relaxed", "weak", "proc_bind", "dist_schedule", "aligned", "nontemporal", "attach",
        ),
        _nothing,
    ),
    **{word: _data(word) for word in ("copy", "copyin", "copyout", "create", "present", "no_create", "deviceptr", "delete")},
    "use_device": _items("use_device"),
    "async": _level("async_"),
    "wait": _wait,
    "self": _level("self_"),
    **{word: _flag(word) for word in ("finalize", "if_present", "seq", "independent", "auto")},
    **{word: _level(word) for word in ("gang", "worker", "vector")},
    "tile": lambda clause, _: [valued_all("tile", clause.expressions, tuple)],
    "device_type": _device_type,
}  # fmt: skip
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


_OF_CONSTRUCTS: Mapping[str, Mapping[str, Translation]] = {
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
    "depobj": {"destroy": lambda clause, _: [FixedArgument("destroy", value=True)]},
    "interop": _OF_INTEROP,
}
"""The clauses that a construct takes in another way than `TRANSLATIONS` says."""
