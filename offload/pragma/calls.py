"""A parsed directive as the call of the API that it stands for.

Theory of operation
-------------------
`translations` says for each clause which keyword arguments it becomes. `DirectiveCall` makes
the arguments once. Arguments that the string alone decides go to the
construct once (`decorate`). The others have expressions. `values` makes one tuple of them, which the rewritten function
evaluates where the directive stands, in the order of the string. `encounter`, `manage` and `run` take that tuple.

If a block names arrays in data clauses, the first element of the tuple tells whether all of these names hold NumPy
arrays, as nearly always: it is None then, and their clauses are as they were given once.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from offload.arrays.items import SCALARS
from offload.errors import ClauseError, OffloadError
from offload.pragma import runs
from offload.pragma.call_arguments import (
    CallArgument,
    DependArgument,
    FixedArgument,
    ItemsArgument,
    ItemsWay,
    Setting,
    is_static,
    merged,
    written_item,
)
from offload.pragma.items import UNBOUND, is_mappable
from offload.pragma.tables import Form, row_of
from offload.pragma.translations import DEPENDENCES, translated
from offload.pragma.values import looked_up, tuple_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.pragma.call_arguments import OptionalName
    from offload.pragma.items import MappedPart
    from offload.pragma.syntax import Directive
    from offload.pragma.values import Naming


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
        The names that the construct's clauses write as strings. The function of a block needs parameters of these
        names.
    binds : tuple of str
        The names to which results are bound, in order: the result of `run` (of ``depobj(o)`` and ``interop``), or the
        elements of the tuple that the block of `manage` gives.
    events : tuple of str
        The names in ``detach``. Bind each to `items.event_for` of its value before `values` is evaluated.
    reductions : tuple of (str, str)
        Operators and names of ``reduction``.
    """

    __slots__ = (
        "_arguments", "_optional", "_parts", "_passes_depend", "_places", "_varying", "_way", "binds", "directive",
        "events", "form", "key", "named", "reductions",
    )  # fmt: skip

    def __init__(self, directive: Directive, parameters: frozenset[str] | None = None) -> None:
        self.directive = directive
        self.form = row_of(directive).form
        self.key = _key_of(directive)
        self._way = _way_of(self.form) if parameters is None else ItemsWay.FUNCTION
        setting = Setting(self._way, parameters or frozenset())
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
            argument for argument in evaluated if isinstance(argument, ItemsArgument) and self._way is ItemsWay.BLOCK
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
        """Return the list items with subscripts or members in the data clauses of a block, in order."""
        return [part for one in self._parts for part in one.parts(values[self._places[id(one)]])]

    def groups(self, values: Sequence[Any]) -> list[Sequence[MappedPart]]:
        """Return the same by list item: an item of a clause with iterators stands for several."""
        return [group for one in self._parts for group in one.groups(values[self._places[id(one)]])]

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
            return {word: value for word, value in given.items() if not _is_empty(value)}
        for word in ("reduction", "in_reduction"):
            if given.get(word) == {}:
                given[word] = None  # a reduction of nothing
        return given

    def fixed(self) -> dict[str, Any]:
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
        make, fixed = runs_of(self.key).DECORATORS[self.key], self.fixed()
        try:
            return make(**fixed)(function)
        except ClauseError:
            if self._way is not ItemsWay.BLOCK:
                raise
        # The construct refuses a value, such as a negative priority. It does so where the block is encountered.
        self._varying |= fixed.keys()
        self._passes_depend = False
        return make()(function)

    def encounter(self, construct: Any, values: Sequence[Any]) -> Any:
        """Return a construct that `decorate` has made with the clauses of an encounter, to be called."""
        try:
            if self._passes_depend and (not self._optional or values[0] is None):
                return construct.options(depend=values[-1])
            left_out = self.left_out(values)
            words = self._varying
            if left_out:
                words |= {one.keyword for one in self._arguments if not left_out.isdisjoint(_names(one.optional))}
            return construct.options(**self.replaced(self._given(values, left_out, words))) if words else construct
        except OffloadError as error:
            self.reword(error)
            raise

    def evaluated(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return the keyword clauses that an encounter replaces, given the values of the expression of `values`."""
        return self.replaced(self._given(values, _NONE, self._varying))

    def reword(self, error: OffloadError) -> None:
        """Have the message of an error name clauses as directives spell them."""
        from offload.pragma.wording import reword  # only errors need it

        reword(error, self.key)

    def replaced(self, given: dict[str, Any]) -> dict[str, Any]:
        """Carry out the clauses that no keyword of the construct stands for; return the others."""
        waits = given.pop("wait_on", None)
        if waits is not None:
            runs_of(self.key).wait_on(waits, given.get("async_"))
        return given

    def manage(self, values: Sequence[Any]) -> Any:
        """Return the context manager of a directive whose block stays."""
        try:
            return runs_of(self.key).MANAGERS[self.key](**self.replaced(self.keywords(values)))
        except OffloadError as error:
            self.reword(error)
            raise

    def run(self, values: Sequence[Any]) -> Any:
        """Carry out a directive that stands alone; return the object that a name is to be bound to, or the task."""
        try:
            return runs_of(self.key).RUNS[self.key](**self.replaced(self.keywords(values)))
        except OffloadError as error:
            self.reword(error)
            raise


_NONE: frozenset[str] = frozenset()


def runs_of(key: str) -> Any:
    """Return the module that has the calls of a construct, by its key."""
    if not key.startswith("acc."):
        return runs
    from offload.pragma import acc_runs  # only programs of OpenACC import `offload.acc`

    return acc_runs


def _key_of(directive: Directive) -> str:
    """Return the key of a directive in the tables of calls: the construct, or the directive's name."""
    row = row_of(directive)
    if row.form in (Form.NEST, Form.INNER, Form.SECTION):
        return row.stands_for
    name = directive.name.replace(" ", "_")
    return f"acc.{name}" if directive.language == "acc" else name


def _way_of(form: Form) -> ItemsWay:
    return ItemsWay.IN_PLACE if form in (Form.STAYS, Form.ALONE) else ItemsWay.BLOCK


def _names(optional: tuple[OptionalName, ...]) -> list[str]:
    return [one.name for one in optional]


def _is_empty(value: Any) -> bool:
    return value.__class__ in (list, dict, tuple) and not value


def _does_not_fit(value: Any, *, is_strict: bool) -> bool:
    if is_strict:
        return not is_mappable(value)
    return value is UNBOUND or value.__class__ in SCALARS


def _arguments_of(directive: Directive, key: str, setting: Setting) -> list[CallArgument]:
    """Return the arguments of the call, in the order of the string."""
    found: list[CallArgument] = list(runs.positional(directive))
    for clause in directive.clauses:
        for argument in translated(clause, key, setting):
            last = found[-1] if found else None
            if isinstance(argument, DependArgument) and isinstance(last, DependArgument):
                found[-1] = DependArgument((*last.clauses, *argument.clauses))
            else:
                found.append(argument)
    if setting.way is ItemsWay.FUNCTION:
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
        made = [DEPENDENCES[clause.kind](*map(written_item, clause.items)) for clause in clauses]
        at = next(at for at, one in enumerate(found) if isinstance(one, DependArgument))
        found[at] = FixedArgument("depend", made)
        found[:] = [one for one in found if not isinstance(one, DependArgument)]
