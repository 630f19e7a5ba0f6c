"""From a function and the types of a call's arguments to a typed function, and what is kept with it.

Theory of operation
-------------------
A `LoopProgram` belongs to a function and what its clauses say of the loop; `options` that say the same share it. It is
parsed once for each set of parameters that are None, and once more whenever a scalar that the function reads from
outside has changed, since that is frozen into the text. A `Specialisation` is such a text with the types of arguments.
Both are looked up by keys that a call makes of its arguments, so that a call which has been made before parses nothing.
Two threads that come with the same new types make it once.
"""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, get_args

import numpy as np

from offload.arrays.items import SCALARS, array_section, is_device_array, is_foreign
from offload.constructs.clauses.names import bound_by
from offload.errors import LoopError
from offload.loops.emit.python_form import host_parts
from offload.loops.front.accesses import Access, accesses
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import Source
from offload.loops.front.types import infer
from offload.loops.tree import ir
from offload.loops.tree.naming import FLOATS, LATEST, float_bits, name_of
from offload.loops.tree.uses import deciding_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offload.loops.emit.python_form import Trips
    from offload.loops.front.source import Outlook
    from offload.loops.running.clauses import LoopWords

Kind: TypeAlias = ir.Type | ir.ArrayType | None
"""What of an argument is in the key: the type of a scalar or an array; None is None."""

Parts: TypeAlias = "tuple[Callable[[dict[str, Any], Mapping[str, Any]], tuple[Trips, ...] | None], ...]"

_DTYPES: Final = frozenset(get_args(ir.Dtype))
_WEAK: Final[Mapping[type, ir.Type]] = {
    bool: ir.Type("bool", is_weak=True),
    int: ir.Type("int64", is_weak=True),
    float: ir.Type("float64", is_weak=True),
}


class Seen(NamedTuple):
    """What the names from outside stood for when they were last looked at, and what belongs to that."""

    outlook: Outlook
    outside: tuple[object, ...]
    specialised: dict[Any, Specialisation]
    ready: dict[Any, Any]
    mark: object


class LoopProgram:
    """A function and what its clauses say of the loop.

    Parameters
    ----------
    function : callable
        The undecorated function.
    words : LoopWords
    directive : str
        For messages.

    Raises
    ------
    LoopError
        What is wrong with the function whatever its arguments are.
    """

    def __init__(self, function: Callable[..., Any], words: LoopWords, directive: str) -> None:
        self.function = function
        self.words = words
        self.directive = directive
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self.source = Source.of(function)
        self.warned: set[str] = set()  # what has been said once
        self.n_looked: dict[str, int] = {}  # elements of tables of indices that were seen to differ
        self.has_stayed = False  # a call has run on the program's own arrays, and others may
        self._signature = inspect.signature(function)
        self.parameters = tuple(self._signature.parameters)
        by_name = inspect.Parameter.KEYWORD_ONLY
        self._n_positional = sum(one.kind is not by_name for one in self._signature.parameters.values())
        self._clauses = _nest_clauses(words)
        self._parsed: dict[Any, ir.LoopFunction] = {}
        self._specialised: dict[Any, dict[Any, Specialisation]] = {}
        self._lock = threading.Lock()
        self._tells_floats = False
        self._seen = self._look()
        self._parse(self._seen.outside, frozenset())

    def bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by the names of the parameters. Raises as `bound_by`."""
        if not kwargs and len(args) == self._n_positional == len(self.parameters):
            return dict(zip(self.parameters, args, strict=True))
        return dict(bound_by(self.function, self._signature_now(), args, kwargs).arguments)

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
        """Return what the names from outside stand for now, with what has been made for that."""
        seen = self._seen
        if not seen.outlook.holds():
            seen = self._seen = self._look()
        return seen

    def ready(self, args: tuple[Any, ...]) -> Any:
        """Return the `Ready` of a call by position, which is to fill it in; None if more is left of it."""
        known = self.seen().ready
        if not known:
            return None
        latest = known.get(LATEST)
        if latest is not None and len(args) == len(self.parameters) and latest.matches(args):
            return latest
        found = known.get(name_of(args))
        if found is not None:
            known[LATEST] = found
        return found

    def deciding(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what else than its arrays decides how a call by position maps these: what stands for no other call."""
        found: list[Any] = [self.seen().mark]
        for value in args:
            kind = value.__class__
            found.append(kind)
            if kind in FLOATS:
                if self._tells_floats:
                    found.append(float_bits(value))
            elif kind in SCALARS:
                found.append(value)
            else:
                found.append(getattr(value, "dtype", None))  # which NumPy lets a program change
        return tuple(found)

    def specialise(self, values: Mapping[str, Any]) -> Specialisation:
        """Return the function with the types of these arguments.

        Raises
        ------
        LoopError
            What is wrong with such types.
        """
        seen = self.seen()
        kinds_in_key: list[Any] = []  # what tells kinds of arguments apart, in less time than to find out which it is
        for value in values.values():
            kind = value.__class__
            kinds_in_key.append(kind)
            if kind not in SCALARS and value is not None:
                kinds_in_key += getattr(value, "dtype", None), getattr(value, "ndim", None)
        key = tuple(kinds_in_key)
        found = seen.specialised.get(key)
        if found is None:
            kinds = tuple(map(self._kind, values.items()))
            with self._lock:
                found = seen.specialised.get(key)
                if found is None:
                    found = seen.specialised[key] = self._specialisation(seen.outside, values, kinds)
        return found

    def specialisations(self) -> list[Specialisation]:
        """Return what has been made of it."""
        return [spec for found in self._specialised.values() for spec in found.values()]

    def _look(self) -> Seen:
        """Return what the names outside stand for now, and what has been specialised for that."""
        while True:
            outlook = self.source.outlook()
            outside = self.source.key()
            if outlook.holds():  # else another thread has changed a name in between
                return Seen(outlook, outside, self._specialised.setdefault(outside, {}), {}, object())

    def _specialisation(self, outside: Any, values: Mapping[str, Any], kinds: tuple[Kind, ...]) -> Specialisation:
        named = dict(zip(values, kinds, strict=True))
        function = self._parse(outside, frozenset(name for name, kind in named.items() if kind is None))
        scalars = {name: kind for name, kind in named.items() if isinstance(kind, ir.Type)}
        arrays = {name: kind for name, kind in named.items() if isinstance(kind, ir.ArrayType)}
        made = Specialisation(self, infer(function, scalars, arrays))
        self._tells_floats = self._tells_floats or made.tells_floats
        return made

    def _parse(self, outside: Any, absent: frozenset[str]) -> ir.LoopFunction:
        key = outside, absent
        if key not in self._parsed:
            self._parsed[key] = parse(self.source, self._clauses, absent)
        return self._parsed[key]

    def _kind(self, item: tuple[str, Any]) -> Kind:
        """Return what of an argument is in the key."""
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
                raise self._refusal("types", name, f"of dtype {dtype}, which loops do not have; convert it first")
            return ir.ArrayType(dtype.name, len(value.shape)) if is_array else ir.Type(dtype.name)
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


MOST_LOGGED: Final = 64
"""Loops with logs that a specialisation keeps, as many as plans."""


class Specialisation:
    """A program with the types of arguments, and what has been made of it.

    Attributes
    ----------
    program : LoopProgram
    typed : Typed
    uses : mapping of str to Access
        What the nests do with each array.
    deciding : tuple of str
        The scalars that decisions about a nest may follow from.
    forms : dict
        The compiled nests, by nest and variant.
    own : dict of str to str
        Arrays of which each iteration has its own, by the clause that says so.
    plans : dict
        What has been decided for numbers of a call.
    looked : dict
        And for elements that indices are made of.
    n_looks : int
        Looks of devices at such elements since one has been of use.
    logged : dict
        The loop with logs, or observed, for numbers of a call.
    speculation : Memory or None
        What is remembered of speculative calls.
    observed : dict
        Calls whose iterations have been seen to be independent, the latest last.
    prepared : dict
        What calls lead to, by the numbers that it follows from.
    given, changed : tuple of str
        The parameters that are arrays, and those of them that the nests write to, copies left out.
    told : tuple of (str, bool)
        The parameters that decisions may follow from, and whether they are floats.
    tells_floats : bool
        Whether there are floats among them.
    free : tuple of str
        The other scalar parameters; floats.
    shapes : dict
        What follows from plans on CUDA.
    """

    __slots__ = (
        "_parts",
        "changed",
        "deciding",
        "forms",
        "free",
        "given",
        "lock",
        "logged",
        "looked",
        "n_looks",
        "observed",
        "own",
        "plans",
        "prepared",
        "program",
        "shapes",
        "speculation",
        "tells_floats",
        "told",
        "typed",
        "uses",
    )

    def __init__(self, program: LoopProgram, typed: ir.Typed) -> None:
        self.program = program
        self.typed = typed
        self.uses: Mapping[str, Access] = {**dict.fromkeys(typed.arrays, Access()), **accesses(typed.function)}
        self.forms: dict[Any, Any] = {}
        self.own = {name: word for nest in typed.function.nests for name, word in nest.privates.items()}
        self.plans: dict[Any, Any] = {}
        self.looked: dict[Any, Any] = {}
        self.n_looks = 0
        self.logged: dict[Any, Any] = {}
        self.speculation: Any = None
        self.observed: dict[Any, None] = {}
        self.shapes: dict[int, Any] = {}
        self._parts: Parts | None = None
        self.deciding = deciding_names(typed)
        self.prepared: dict[Any, Any] = {}
        parameters = program.parameters
        self.given = tuple(name for name in parameters if name in typed.arrays)
        copied = [name for name, word in self.own.items() if word != "lastprivate"]
        self.changed = tuple(name for name in self.given if self.uses[name].is_changed and name not in copied)
        scalars = {name: typed.scalars[name].dtype for name in parameters if name in typed.scalars}
        self.told = tuple((name, scalars[name].startswith("float")) for name in scalars if name in self.deciding)
        self.tells_floats = any(is_float for _, is_float in self.told)
        self.free = tuple(name for name in scalars if name not in self.deciding)
        self.lock = threading.Lock()

    @property
    def parts(self) -> Parts:
        """What the host carries out, as `host_parts` returns it."""
        if self._parts is None:
            self._parts = host_parts(self.typed)
        return self._parts


def program_of(function: Callable[..., Any], words: LoopWords, directive: str, shared: dict[str, Any]) -> LoopProgram:
    """Return the program of a function; ``shared`` is what all copies of a loop function have in common."""
    programs: dict[LoopWords, LoopProgram] = shared.setdefault("_programs", {})
    program = programs.get(words)
    if program is None:
        program = programs[words] = LoopProgram(function, words, directive)
    return program


def _nest_clauses(words: LoopWords) -> NestClauses:
    return NestClauses(
        collapse=words.collapse,
        reductions=tuple(ir.Reduction(operator, name) for operator, name in words.reductions),
        private=words.private,
        firstprivate=words.firstprivate,
        lastprivate=words.lastprivate,
        atomic=words.atomic,
        level=words.level,
        sizes=words.sizes,
        order=words.order,
        tile=words.tile,
        several=words.several,
        checks=words.checks,
    )
