"""From a function and the types of a call's arguments to a typed function, with its memos.

A `LoopProgram` belongs to a function and its clauses; equal `options` share it. It is parsed once for each set of
parameters that are None, and again when an outside scalar has changed, since scalars are frozen into the text. A
`Specialisation` adds the types of arguments. A call that has been made before finds both by keys and parses nothing.
Two threads with the same new types make it once.
"""

from __future__ import annotations

import inspect
import threading
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np

from offload.arrays.items import SCALARS, array_section, is_device_array, is_foreign, with_numbers
from offload.constructs.clauses.names import bound_by
from offload.errors import ClauseError, LoopError
from offload.loops.emit.python_form import host_parts
from offload.loops.front.layouts import KINDS, AnyLayout, is_layout
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.front.types import infer
from offload.loops.running.memo import FLOATS, CallKey, CallRecord, Memo, float_bits, name_of
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.promotion import is_inexact
from offload.loops.tree.recurrences import scan_of
from offload.loops.tree.uses import ArrayUse, accesses, deciding_names

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from offload.loops.emit.python_form import AxisRange
    from offload.loops.front.source import Outlook
    from offload.loops.running.clauses import LoopWords

# What of an argument is in the key: the type of a scalar or an array, or an array type itself; None is None.
Kind: TypeAlias = ir.Type | ir.LoopArrayType | AnyLayout | None

Parts: TypeAlias = "tuple[Callable[[dict[str, Any], Mapping[str, Any]], tuple[AxisRange, ...] | None], ...]"

FormT = TypeVar("FormT")

# Functions with types, and compiled nests, that are kept of one function: some hundred values of outside names.
_MOST_MADE: Final = 1024

_DTYPES: Final = frozenset(get_args(ir.Dtype))
_WEAK: Final[Mapping[type, ir.Type]] = {
    bool: ir.Type("bool", is_weak=True),
    int: ir.Type("int64", is_weak=True),
    float: ir.Type("float64", is_weak=True),
    complex: ir.Type("complex128", is_weak=True),
}


class Seen(NamedTuple):
    """The values of outside names when the program last looked, and the calls that are settled while they hold."""

    outlook: Outlook  # tells whether the names stand for the same
    values: object  # stands for their values in keys: equal values have the same one
    settled: Memo[Any, Any]  # a `SettledCall` by the name of a call


class LoopProgram:
    """A function and its clauses for the loop. A function that can never be a loop raises `LoopError`."""

    def __init__(self, function: Callable[..., Any], words: LoopWords, directive: str) -> None:
        self.function = function
        self.words = words  # the clauses of the loop
        self.directive = directive  # for messages
        self.name: str = getattr(function, "__name__", type(function).__name__)  # for messages
        self.source = FunctionSource.of(function)  # the text of the function
        self.warned: set[str] = set()  # what has been said once
        self.n_looked: dict[str, int] = {}  # elements of tables of indices that were seen to differ
        self.is_speculative = words.speculate is not None  # nobody has proved that its iterations are independent
        self.has_stayed = False  # a call has run on the program's own arrays, and others may
        self._signature = inspect.signature(function)  # with the defaults that were seen last
        self.parameters = tuple(self._signature.parameters)
        by_name = inspect.Parameter.KEYWORD_ONLY
        # parameters that are passed by position
        self._n_positional = sum(one.kind is not by_name for one in self._signature.parameters.values())
        self._clauses = _nest_clauses(words)  # those that the parser needs
        # All that is made of the function. Values of outside names have an object that stands for them. With that, the
        # parameters that are None have a `ParsedFunction`, and kinds of arguments a `Specialisation`, which keeps its
        # compiled nests here.
        self.made: Memo[Any, Any] = Memo(_MOST_MADE)
        self._lock = threading.Lock()  # for what is made once
        self._tells_floats = False  # whether a decision follows from a float, for any types so far
        self._seen = self._look()  # of outside names
        if not self.source.called:  # else its text depends on array types, which are arguments
            parsed = self._parse(self._seen.values, frozenset(), {})
            if words.reassociate and not any(scan_of(nest) for nest in parsed.nests):
                raise ClauseError(
                    f"{directive} {self.name!r}: reassociate=True is for scans, but no scalar passes from iteration to "
                    "iteration by updates alone, such as `s += x[i]`, and is read there; leave it out"
                )

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by the names of the parameters. Raises as `bound_by` and `with_numbers`."""
        if not kwargs and len(args) == self._n_positional == len(self.parameters):
            values = dict(zip(self.parameters, args, strict=True))
        else:
            values = dict(bound_by(self.function, self._signature_now(), args, kwargs).arguments)
        for name, value in values.items():
            if value.__class__ is not np.ndarray:
                values[name] = with_numbers(value, f"{self.directive} {self.name!r}: {name}")
        return values

    def _signature_now(self) -> inspect.Signature:
        """Return the signature with the defaults that the function has now."""
        function: Any = self.function
        by_place, by_name = function.__defaults__ or (), function.__kwdefaults__ or {}
        known = [one.default for one in self._signature.parameters.values() if one.default is not one.empty]
        now = (*by_place, *by_name.values())
        if len(known) != len(now) or any(one is not other for one, other in zip(known, now, strict=True)):
            self._signature = inspect.signature(function)
        return self._signature

    def seen(self) -> Seen:
        """Return the present values of the names from outside, with the specialisations for them."""
        seen = self._seen
        if not seen.outlook.holds():
            seen = self._seen = self._look()
        return seen

    def settled(self, args: tuple[Any, ...]) -> Any:
        """Return the `SettledCall` of a call by position; None if more is left of it."""
        known = self.seen().settled
        if not known:
            return None
        latest = known.latest
        if latest is not None and len(args) == len(self.parameters) and latest.pattern.fits(args):
            return latest
        found = known.get(name_of(args))
        if found is not None:
            known.latest = found
        return found

    def deciding(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a key for how a call by position maps its arrays: it differs where they may map differently."""
        found: list[Any] = [self.seen().values]
        for value in args:
            kind = value.__class__
            found.append(kind)
            if kind in FLOATS:
                if self._tells_floats:
                    found.append(float_bits(value))
            elif kind in SCALARS or kind in KINDS:
                found.append(value)
            else:
                found.append(getattr(value, "dtype", None))  # which NumPy lets a program change
        return tuple(found)

    def specialise(self, values: Mapping[str, Any]) -> Specialisation:
        """Return the function with the types of these arguments; wrong types raise `LoopError`."""
        seen = self.seen()
        kinds_in_key: list[Any] = [seen.values]  # then what tells kinds apart, in less time than to find the kind
        for value in values.values():
            kind = value.__class__
            kinds_in_key.append(kind)
            if kind in KINDS:
                kinds_in_key.append(value)
            elif kind not in SCALARS and value is not None:
                kinds_in_key += getattr(value, "dtype", None), getattr(value, "ndim", None)
        key = tuple(kinds_in_key)
        found: Specialisation | None = self.made.get(key)
        if found is None:
            kinds = tuple(map(self._kind, values.items()))
            with self._lock:
                found = self.made.get(key) or self.made.keep(key, self._specialisation(seen.values, values, kinds))
        return found

    def specialisations(self) -> list[Specialisation]:
        """Return all specialisations."""
        return [made for made in self.made.values() if isinstance(made, Specialisation)]

    def _look(self) -> Seen:
        """Return what the names outside stand for now."""
        while True:
            outlook = self.source.outlook()
            outside = self.source.key()
            if outlook.holds():  # else another thread has changed a name in between
                return Seen(outlook, self.made.use(outside) or self.made.setdefault(outside, object()), Memo())

    def _specialisation(self, outside: object, values: Mapping[str, Any], kinds: tuple[Kind, ...]) -> Specialisation:
        named = dict(zip(values, kinds, strict=True))
        layouts = {name: kind for name, kind in named.items() if is_layout(kind)}
        function = self._parse(outside, frozenset(name for name, kind in named.items() if kind is None), layouts)
        scalars = {name: kind for name, kind in named.items() if isinstance(kind, ir.Type)}
        arrays = {name: kind for name, kind in named.items() if isinstance(kind, ir.LoopArrayType)}
        made = Specialisation(self, infer(function, scalars, arrays))
        self._tells_floats = self._tells_floats or made.tells_floats
        return made

    def _parse(self, outside: object, absent: frozenset[str], layouts: Mapping[str, AnyLayout]) -> ir.ParsedFunction:
        key = outside, absent, tuple(layouts.items())
        found: ir.ParsedFunction | None = self.made.get(key)
        return found or self.made.keep(key, parse(self.source, self._clauses, absent, layouts))

    def _kind(self, item: tuple[str, Any]) -> Kind:
        """Return the part of an argument that is in the key."""
        name, value = item
        if value is None:
            return None
        weak = _WEAK.get(value.__class__)
        if weak is not None:
            return weak
        is_array = isinstance(value, np.ndarray) or (
            not isinstance(value, np.generic) and (is_device_array(value) or is_foreign(value))
        )
        if isinstance(value, np.ndarray) and value.__class__ is not np.ndarray:
            array_section(value)  # refuses masked arrays and matrices
        if is_array or isinstance(value, np.generic):
            dtype = value.dtype
            if dtype.name not in _DTYPES or not dtype.isnative:
                raise self._refusal("types", name, f"of dtype {dtype}, which loops do not support; convert it first")
            return ir.LoopArrayType(dtype.name, len(value.shape)) if is_array else ir.Type(dtype.name)
        if is_layout(value):
            return value
        for base, kind in _WEAK.items():  # an enum's member is a number
            if isinstance(value, base):
                return kind
        raise self._refusal(
            "argument", name, f"of class {type(value).__name__}, which loops cannot use; pass its arrays and numbers"
        )

    def _refusal(self, rule: str, name: str, what: str) -> LoopError:
        place = self.source.place
        return LoopError(
            f"{place.file}:{place.line}, {self.name}: argument {name!r} is {what}", place.file, place.line, rule
        )


class Specialisation:
    """A program with the types of arguments, and the forms and records made of it."""

    def __init__(self, program: LoopProgram, typed: ir.Typed, whole: Specialisation | None = None) -> None:
        self.program = program  # the function, with its clauses
        self.typed = typed
        self.whole = whole  # has all nests of the function, if this one has only some of them
        # what the nests do with each array
        self.uses: Mapping[str, ArrayUse] = {**dict.fromkeys(typed.arrays, ArrayUse()), **accesses(typed.function)}
        # arrays of which each iteration has its own, with the clause that says so
        self.own = {name: word for nest in typed.function.nests for name, word in nest.privates.items()}
        self.calls: Memo[CallKey, CallRecord] = Memo()  # what is remembered of calls, by their numbers
        self.n_contents = 0  # contents of index arrays for which decisions have been made
        self.n_looks = 0  # looks of devices at index arrays since one has been of use
        self.speculation: Any = None  # a `Memory`: what is remembered of all speculative calls
        self._parts: Parts | None = None  # what the host carries out before the nests, once it is made
        # functions with some of the nests, by their numbers, and whether these are in order
        self._of_nests: dict[tuple[int, int, frozenset[int]], Specialisation] = {}
        deciding = deciding_names(typed)
        parameters = program.parameters
        self.given = tuple(name for name in parameters if name in typed.arrays)  # parameters that are arrays
        copied = [name for name, word in self.own.items() if word != "lastprivate"]
        # the arrays that the nests write to, without those of which only copies are written
        self.changed = tuple(name for name in self.given if self.uses[name].is_changed and name not in copied)
        scalars = {name: typed.scalars[name].dtype for name in parameters if name in typed.scalars}
        # The scalars that decisions may follow from, and whether they are floats or complex. The others, all floats or
        # complex, are free.
        self.told = tuple((name, is_inexact(scalars[name])) for name in scalars if name in deciding)
        self.tells_floats = any(is_float for _, is_float in self.told)  # whether a decision follows from a float
        self.free = tuple(name for name in scalars if name not in deciding)  # scalars that no decision follows from
        self.lock = threading.Lock()  # for all that is remembered here

    def key(self, values: Mapping[str, Any]) -> CallKey:
        """Return the key of a call: calls with equal keys lead to the same, at any addresses of arrays."""
        layouts: list[Any] = []
        for name in self.given:
            array = values[name]
            layouts += array.shape, array.strides
        scalars = [
            float_bits(values[name]) if is_float and not isinstance(values[name], int) else values[name]
            for name, is_float in self.told
        ]
        return tuple(layouts), tuple(scalars)

    def record(self, key: CallKey) -> CallRecord:
        """Return the record of the calls with a key, and mark it as the latest one."""
        record = self.calls.use(key)
        if record is None:
            with self.lock:
                record = self.calls.get(key) or self.calls.keep(key, CallRecord())
        return record

    def form(self, key: Hashable, make: Callable[[], FormT]) -> FormT:
        """Return the compiled nest of a key, which tells nests and variants apart, made once."""
        made, key = self.program.made, (self, key)
        found: FormT | None = made.get(key)
        if found is None:
            with self.lock:
                found = made.get(key) or made.keep(key, make())
        return found

    def of_nests(self, first: int, end: int, in_order: frozenset[int] = frozenset()) -> Specialisation:
        """Return the function with only some of its nests, from one to before another; it remembers calls of its own.

        Its arrays are those that these nests, and the scalar statements before them, use. The iterations
        of nests ``in_order`` run in order, as if the program said ``seq``.
        """
        key = first, end, in_order
        found = self._of_nests.get(key)
        if found is None:
            with self.lock:
                typed = _with_nests(self.typed, *key)
                found = self._of_nests.setdefault(key, Specialisation(self.program, typed, self))
        return found

    def parts_made(self) -> list[Specialisation]:
        """Return the functions with some of the nests, so far."""
        return list(self._of_nests.values())

    @property
    def parts(self) -> Parts:
        """The parts of the function that the host carries out, from `host_parts`."""
        if self._parts is None:
            self._parts = host_parts(self.typed)
        return self._parts


def _with_nests(typed: ir.Typed, first: int, end: int, in_order: frozenset[int]) -> ir.Typed:
    """Return a function with the nests from one to before another, and the scalar statements before them."""
    function, parts, number = typed.function, list[ir.Statement | ir.Nest](), 0
    for part in function.parts:
        if number == end:
            break
        if not isinstance(part, ir.Nest):
            parts.append(part)
            continue
        if number >= first:
            order = "seq" if number in in_order else part.clauses.order
            parts.append(replace(part, clauses=replace(part.clauses, order=order)))
        number += 1
    nests = [part for part in parts if isinstance(part, ir.Nest)]
    nodes: list[ir.Statement | ir.Expression] = [part for part in parts if isinstance(part, ir.Statement)]
    items: set[str] = set()
    for nest in nests:
        nodes += [*nest.body, *(bound for axis in nest.axes for bound in (axis.start, axis.stop, axis.step))]
        items |= {*nest.last, *nest.privates, *(item.name for item in nest.reductions)}
    used = items | {getattr(node, "array", None) or getattr(node, "name", None) for node in walk(*nodes)}
    return replace(
        typed,
        function=replace(
            function,
            parts=tuple(parts),
            arrays=tuple([name for name in function.arrays if name in used]),
            returns=tuple([name for name in function.returns if name in items]),
        ),
        arrays={name: kind for name, kind in typed.arrays.items() if name in used},
    )


def program_of(function: Callable[..., Any], words: LoopWords, directive: str, shared: dict[str, Any]) -> LoopProgram:
    """Return the program of a function; ``shared`` is the dictionary that all copies of a loop function share."""
    programs: dict[LoopWords, LoopProgram] = shared.setdefault("_programs", {})
    program = programs.get(words)
    if program is None:
        program = programs[words] = LoopProgram(function, words, directive)
    return program


def _nest_clauses(words: LoopWords) -> NestClauses:
    """Return the clauses that the parser needs."""
    said = {one.name: getattr(words, one.name) for one in fields(NestClauses)}
    said["reductions"] = tuple(ir.LoopReduction(operator, name) for operator, name in words.reductions)
    return NestClauses(**said)
