"""OpenMP's and OpenACC's directives and clauses as tables: the one place that says what a directive string may hold.

A `DirectiveRow` says how a directive is written and which clauses it takes. A `ClauseRow` says which argument a clause
takes. `refused` has the rest of both standards, so that `parser` never calls a word of the standard a typo. The parser,
the page in the docs and the tests read these tables. Nothing else knows which clause stands where.
"""

from __future__ import annotations

import enum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from offload.pragma.refused import CLAUSE_REMEDIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.pragma.syntax import Directive, Language


class Form(enum.Enum):
    """How a directive is written, and what becomes of its block."""

    TAKEN = enum.auto()  # the block becomes a function
    STAYS = enum.auto()  # the block stays a ``with``
    ALONE = enum.auto()  # a statement
    LOOP = enum.auto()  # around one ``for``, whose body becomes a function: ``taskloop``
    NEST = enum.auto()  # around a nest of loops, which becomes a loop function
    INNER = enum.auto()  # inside of such a nest only
    CALLED = enum.auto()  # the block becomes a function, which is called at once: ``taskgraph``
    SECTION = enum.auto()  # a ``section``: the block becomes a task


class Takes(enum.Enum):
    """The argument that a clause takes."""

    NOTHING = enum.auto()
    VALUE = enum.auto()  # one expression
    OPTIONAL_VALUE = enum.auto()
    VALUES = enum.auto()  # one expression or more
    OPTIONAL_VALUES = enum.auto()
    NAMES = enum.auto()  # a list of names
    OPTIONAL_NAMES = enum.auto()
    DATA = enum.auto()  # a list of names, attributes, and sections of either
    LOCATIONS = enum.auto()  # a list of expressions, or ``omp_all_memory``
    WORD = enum.auto()  # a word of `ClauseRow.kinds`
    OPERATOR = enum.auto()  # the operator of a reduction, then list items
    DEVICE_TYPE = enum.auto()  # a word for a type of device, or ``*``


_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


# Rows never change. The import of two frozen dataclasses with as many fields takes 1.3 ms.
class ClauseRow:
    """A clause: its argument and its modifiers."""

    kinds: tuple[str, ...] = ()
    """The words that can be `Clause.kind`."""
    noun: str = ""  # for these words in messages: "dependence type"
    needs_kind: bool = False  # of clauses with a list; those that take a word always need it
    modifiers: Mapping[str, bool] = _NOTHING
    """Whether the modifier has an argument in brackets, or for ``devnum`` after a colon."""
    takes_iterator: bool = False
    takes_directive: bool = False  # names of constructs are modifiers, as in ``if(target: e)``
    takes_size: bool = False  # after the word and a comma, as in ``schedule(static, 4)``, or after a colon: ``aligned``
    categories: tuple[str, ...] = ()  # words after the kind and a colon, as in ``defaultmap(to: aggregate)``
    takes_one: bool = False  # exactly one list item
    is_repeatable: bool = False
    is_sharing: bool = False  # a name may be in one such clause only
    has_effect: bool = True
    refused: Mapping[str, str] = _NOTHING
    """Kinds and modifiers of the standard that offload does not support, with what to write instead."""
    aliases: Mapping[str, str] = _NOTHING
    """Other spellings of kinds."""

    def __init__(self, name: str, takes: Takes, **more: Any) -> None:
        self.name = name
        self.takes = takes
        vars(self).update(more)

    def changed(self, **changes: Any) -> ClauseRow:
        """Return the row as one directive takes the clause."""
        return ClauseRow(**{**vars(self), **changes})


class DirectiveRow:
    """A directive: its form and its clauses."""

    stands_for: str = ""
    """The name in `offload` of the construct or routine that carries it out; empty if `offload.pragma` does."""
    is_inner_too: bool = False  # also inside of a nest
    makes_function: bool = False  # also in the form ``@omp("…")`` over a ``def``
    argument: ClauseRow | None = None  # in brackets after the words
    needs_argument: bool = False
    needs: tuple[str, ...] = ()
    """At least one of these clauses must be there."""
    exclusive: tuple[tuple[str, ...], ...] = ()
    """At most one clause of each group can be there."""
    clause_needs: Mapping[str, str] = _NOTHING
    """Clauses that make no sense without another."""
    refused: Mapping[str, str] = _NOTHING
    """Clauses that the standard allows here and offload does not support, with what to write instead."""

    def __init__(
        self, language: Language, name: str, form: Form, clauses: Mapping[str, ClauseRow], **more: Any
    ) -> None:
        self.language: Language = language
        self.name = name
        self.form = form
        self.clauses = clauses  # by the names of `Clause.name`
        vars(self).update(more)


# -- clauses ---------------------------------------------------------------------------------------

OPERATORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{name: name for name in ("+", "*", "&", "|", "^", "and", "or", "min", "max")},
        "&&": "and",
        "||": "or",
        ".and.": "and",
        ".or.": "or",
        "iand": "&",
        "ior": "|",
        "ieor": "^",
        ".neqv.": "^",
    }
)
"""The operators of reductions in C's, Fortran's and Python's spelling, as the constructs know them."""
TAKES_DECLARED_OPERATORS: Final = ("omp",)
"""The languages whose reductions also take a name that `declare_reduction` declares."""

_MAP_KINDS: Final = {
    "target data": ("to", "from", "tofrom", "alloc"),
    "target enter data": ("to", "tofrom", "alloc"),
    "target exit data": ("from", "tofrom", "release", "delete"),
}
MAP_KINDS: Final = ("to", "from", "tofrom", "alloc", "release", "delete")
"""Every map type. A directive's row has those that it takes."""

_REDUCTION_REFUSED: Final = {
    "-": "write +, which has the same meaning",
    ".eqv.": "write .neqv. and negate the result",
    "inscan": "write the running sum as a loop, or call numpy.cumsum",
    "task": "write taskgroup task_reduction(…) and task in_reduction(…)",
}


def _row(name: str, takes: Takes, **more: Any) -> ClauseRow:
    return ClauseRow(name, takes, **{key: _frozen(value) for key, value in more.items()})


def _frozen(value: Any) -> Any:
    return MappingProxyType(value) if isinstance(value, dict) else value


def _plain(words: str, takes: Takes, **more: Any) -> tuple[ClauseRow, ...]:
    """Return the rows of clauses that differ in their names only."""
    return tuple(_row(word, takes, **more) for word in words.split())


def _by_name(*rows: ClauseRow) -> Mapping[str, ClauseRow]:
    return MappingProxyType({row.name: row for row in rows})


_UPDATES: Final = ("in", "out", "inout", "mutexinoutset", "inoutset")
_MOVED: Final[dict[str, Any]] = {
    "modifiers": {"present": False, "mapper": True},
    "takes_iterator": True,
    "is_repeatable": True,
}

OMP_CLAUSES: Final[Mapping[str, ClauseRow]] = _by_name(
    _row(
        "map",
        Takes.DATA,
        kinds=("to", "from", "tofrom", "alloc"),
        noun="map type",
        modifiers={"always": False, "present": False, "close": False, "mapper": True},
        takes_iterator=True,
        is_repeatable=True,
        aliases={"storage": "alloc"},
        refused={"self": "leave it out", "ref_ptr": "leave it out", "ref_ptee": "leave it out"},
    ),
    _row("to", Takes.DATA, **_MOVED),
    _row("from", Takes.DATA, **_MOVED),
    _row(
        "depend",
        Takes.LOCATIONS,
        kinds=(*_UPDATES, "depobj"),
        noun="dependence type",
        needs_kind=True,
        takes_iterator=True,
        is_repeatable=True,
        refused=dict.fromkeys(
            ("source", "sink"), "write tasks that name the element: depend(in: x[i-1]) depend(out: x[i])"
        ),
    ),
    _row("affinity", Takes.DATA, takes_iterator=True, is_repeatable=True, has_effect=False),
    *_plain("private firstprivate lastprivate shared", Takes.NAMES, is_repeatable=True, is_sharing=True),
    *_plain("use_device_ptr use_device_addr", Takes.NAMES, is_repeatable=True, is_sharing=True),
    *_plain("is_device_ptr has_device_addr", Takes.DATA, is_repeatable=True, is_sharing=True),
    _row("copyprivate", Takes.NAMES, is_repeatable=True),
    _row("detach", Takes.NAMES, takes_one=True),
    *_plain(
        "reduction in_reduction task_reduction",
        Takes.OPERATOR,
        noun="operator",
        is_repeatable=True,
        is_sharing=True,
        modifiers={"default": False},
        refused=_REDUCTION_REFUSED,
    ),
    _row("if", Takes.VALUE, takes_directive=True),
    _row("device", Takes.VALUE, modifiers={"device_num": False}, refused={"ancestor": "write device(-1) for the host"}),
    *_plain("priority final graph_id filter collapse num_threads num_teams thread_limit", Takes.VALUE),
    *_plain("safelen simdlen hint", Takes.VALUE, has_effect=False),
    *_plain("grainsize num_tasks", Takes.VALUE, modifiers={"strict": False}),
    *_plain("nowait nogroup graph_reset", Takes.OPTIONAL_VALUE),
    *_plain("untied mergeable", Takes.OPTIONAL_VALUE, has_effect=False),
    *_plain("read write update capture compare", Takes.NOTHING),
    *_plain("seq_cst acq_rel acquire release relaxed weak", Takes.NOTHING, has_effect=False),
    _row("default", Takes.WORD, kinds=("shared", "none", "firstprivate", "private"), noun="default"),
    _row(
        "defaultmap",
        Takes.WORD,
        kinds=("alloc", "to", "from", "tofrom", "firstprivate", "none", "present", "default"),
        noun="behaviour",
        categories=("scalar", "aggregate", "pointer", "all"),
        is_repeatable=True,
        aliases={"storage": "alloc"},
        refused={"private": "name the variables in private(…)", "allocatable": "write aggregate"},
    ),
    _row("proc_bind", Takes.WORD, kinds=("primary", "master", "close", "spread"), noun="policy", has_effect=False),
    _row(
        "schedule",
        Takes.WORD,
        kinds=("static", "dynamic", "guided", "auto", "runtime"),
        noun="schedule",
        modifiers={"monotonic": False, "nonmonotonic": False, "simd": False},
        takes_size=True,
    ),
    _row("dist_schedule", Takes.WORD, kinds=("static",), noun="schedule", takes_size=True, has_effect=False),
    _row(
        "order",
        Takes.WORD,
        kinds=("concurrent",),
        noun="order",
        modifiers={"reproducible": False, "unconstrained": False},
    ),
    _row("bind", Takes.WORD, kinds=("teams", "parallel", "thread"), noun="binding"),
    _row("aligned", Takes.NAMES, is_repeatable=True, takes_size=True, has_effect=False),
    _row("nontemporal", Takes.NAMES, is_repeatable=True, has_effect=False),
    _row(
        "init",
        Takes.NAMES,
        kinds=("targetsync",),
        noun="type of interoperability",
        needs_kind=True,
        takes_one=True,
        refused={"target": "write init(targetsync: o)", "prefer_type": "leave it out"},
    ),
    *_plain("use destroy", Takes.NAMES, takes_one=True),
)

_ZERO: Final[dict[str, Any]] = {"modifiers": {"zero": False}, "is_repeatable": True}
_ACC_REFUSED: Final = dict.fromkeys(("always", "alwaysin", "alwaysout", "capture"), "write an update directive")

ACC_CLAUSES: Final[Mapping[str, ClauseRow]] = _by_name(
    *_plain("copy present no_create deviceptr attach", Takes.DATA, is_repeatable=True, refused=_ACC_REFUSED),
    _row("copyin", Takes.DATA, modifiers={"readonly": False}, is_repeatable=True, refused=_ACC_REFUSED),
    *_plain("copyout create", Takes.DATA, **_ZERO, refused=_ACC_REFUSED),
    *_plain("delete detach device", Takes.DATA, is_repeatable=True),
    _row("use_device", Takes.NAMES, is_repeatable=True, is_sharing=True),
    *_plain("private firstprivate", Takes.NAMES, is_repeatable=True, is_sharing=True),
    _row("reduction", Takes.OPERATOR, noun="operator", is_repeatable=True, is_sharing=True, refused=_REDUCTION_REFUSED),
    _row("async", Takes.OPTIONAL_VALUE),
    _row("wait", Takes.OPTIONAL_VALUES, modifiers={"devnum": True, "queues": False}, is_repeatable=True),
    *_plain("if num_gangs num_workers vector_length default_async device_num", Takes.VALUE),
    _row("collapse", Takes.VALUE, refused={"force": "leave it out, and nest the loops perfectly"}),
    _row("self", Takes.OPTIONAL_VALUE),
    _row("default", Takes.WORD, kinds=("none", "present"), noun="default"),
    *_plain("finalize if_present seq independent auto", Takes.NOTHING),
    _row(
        "gang",
        Takes.OPTIONAL_VALUE,
        modifiers={"num": False},
        refused=dict.fromkeys(("static", "dim"), "leave it out, or write gang(num: n)"),
    ),
    _row("worker", Takes.OPTIONAL_VALUE, modifiers={"num": False}),
    _row("vector", Takes.OPTIONAL_VALUE, modifiers={"length": False}),
    _row("tile", Takes.VALUES, refused={"*": "write a size"}),
    _row("device_type", Takes.DEVICE_TYPE),
    *_plain("read write update capture", Takes.NOTHING),
)

CLAUSES: Final[Mapping[Language, Mapping[str, ClauseRow]]] = MappingProxyType({"omp": OMP_CLAUSES, "acc": ACC_CLAUSES})
"""Every clause of a language, as most directives take it. A directive's row has it as this directive takes it."""

CLAUSE_ALIASES: Final[Mapping[Language, Mapping[str, str]]] = MappingProxyType(
    {
        "omp": MappingProxyType({}),
        "acc": MappingProxyType(
            {
                **{f"p{name}": name for name in ("copy", "copyin", "copyout", "create")},
                **{f"present_or_{name}": name for name in ("copy", "copyin", "copyout", "create")},
                "host": "self",  # of `update`
                "dtype": "device_type",
            }
        ),
    }
)
"""Other spellings of clauses."""

WORD_ALIASES: Final[Mapping[Language, Mapping[str, str]]] = MappingProxyType(
    {"omp": MappingProxyType({"master": "masked"}), "acc": MappingProxyType({})}
)
"""Other spellings of the words of directives."""

# A clause that one directive takes in another way than the other directives.
_SPECIAL: Final[dict[tuple[Language, str, str], dict[str, Any]]] = {
    **{("omp", name, "map"): {"kinds": kinds} for name, kinds in _MAP_KINDS.items()},
    ("omp", "depobj", "depend"): {"kinds": _UPDATES, "is_repeatable": False, "takes_one": True},
    ("omp", "depobj", "update"): {"takes": Takes.WORD, "kinds": _UPDATES, "noun": "dependence type"},
    ("omp", "depobj", "destroy"): {"takes": Takes.OPTIONAL_NAMES},
    ("acc", "update", "self"): {"takes": Takes.DATA, "is_repeatable": True},
}


# -- directives ------------------------------------------------------------------------------------


def _directive(
    language: Language, name: str, form: Form, clauses: str = "", *, refused: str = "", **more: Any
) -> DirectiveRow:
    rows = _rows(language, clauses)
    special = {
        word: rows[word].changed(**changes)
        for (of, at, word), changes in _SPECIAL.items()
        if (of, at) == (language, name)
    }
    remedies = {
        word: CLAUSE_REMEDIES[language].get((name, word)) or CLAUSE_REMEDIES[language]["", word]
        for word in refused.split()
    }
    return DirectiveRow(
        language,
        name,
        form,
        MappingProxyType({**rows, **special}) if special else rows,
        refused=MappingProxyType(remedies),
        **{key: _frozen(value) for key, value in more.items()},
    )


@cache  # many loops take the same clauses
def _rows(language: Language, clauses: str) -> Mapping[str, ClauseRow]:
    return MappingProxyType({word: CLAUSES[language][word] for word in clauses.split()})


_ORDERS: Final = ("seq_cst", "acq_rel", "acquire", "release", "relaxed")
_LOOP_CLAUSES: Final = (
    "collapse reduction private firstprivate lastprivate shared default depend nowait if priority num_teams "
    "thread_limit num_threads schedule order bind safelen simdlen aligned nontemporal dist_schedule proc_bind"
)
_TARGET_LOOP_CLAUSES: Final = f"map device defaultmap is_device_ptr has_device_addr {_LOOP_CLAUSES}"
_LOOP_REFUSED: Final = "allocate linear ordered copyin"
_TARGET_REFUSED: Final = "allocate in_reduction uses_allocators device_type replayable"
_PARALLEL: Final = "num_threads if proc_bind shared private firstprivate default"
_PARALLEL_REFUSED: Final = "reduction copyin allocate message severity safesync"
_TASK_REFUSED: Final = "allocate replayable threadset transparent"

_TARGET_LOOPS: Final = (
    "target parallel",
    "target parallel for",
    "target parallel for simd",
    "target parallel loop",
    "target simd",
    "target loop",
    "target teams",
    "target teams distribute",
    "target teams distribute simd",
    "target teams distribute parallel for",
    "target teams distribute parallel for simd",
    "target teams loop",
)
_HOST_LOOPS: Final = (
    "parallel for",
    "parallel for simd",
    "parallel loop",
    "teams distribute",
    "teams distribute simd",
    "teams distribute parallel for",
    "teams distribute parallel for simd",
    "teams loop",
)
_INNER_LOOPS: Final = (
    "distribute",
    "distribute simd",
    "distribute parallel for",
    "distribute parallel for simd",
    "for",
    "for simd",
    "loop",
    "simd",
)


def _omp(name: str, form: Form, clauses: str = "", **more: Any) -> DirectiveRow:
    return _directive("omp", name, form, clauses, **more)


def _acc(name: str, form: Form, clauses: str = "", **more: Any) -> DirectiveRow:
    return _directive("acc", name, form, clauses, **more)


_OMP: Final = (
    _omp(
        "target",
        Form.TAKEN,
        "map depend nowait device if private firstprivate defaultmap is_device_ptr has_device_addr priority",
        stands_for="target",
        makes_function=True,
        refused=f"{_TARGET_REFUSED} thread_limit default",
    ),
    _omp(
        "target data",
        Form.STAYS,
        "map use_device_ptr use_device_addr device if nowait depend nogroup",
        stands_for="target_data",
        needs=("map", "use_device_ptr", "use_device_addr"),
        refused="affinity allocate default detach firstprivate in_reduction mergeable priority private shared "
        "transparent",
    ),
    *(
        _omp(
            f"target {way} data",
            Form.ALONE,
            "map depend nowait device if",
            stands_for=f"target_{way}_data",
            needs=("map",),
            refused="priority replayable",
        )
        for way in ("enter", "exit")
    ),
    _omp(
        "target update",
        Form.ALONE,
        "to from depend nowait device if",
        stands_for="target_update",
        needs=("to", "from"),
        refused="priority replayable",
    ),
    _omp(
        "task",
        Form.TAKEN,
        "depend detach if final priority shared private firstprivate default in_reduction untied mergeable affinity",
        stands_for="task",
        makes_function=True,
        exclusive=(("detach", "mergeable"),),
        refused=_TASK_REFUSED,
    ),
    _omp(
        "taskloop",
        Form.LOOP,
        "grainsize num_tasks reduction in_reduction nogroup if final priority shared private firstprivate default "
        "untied mergeable",
        stands_for="taskloop",
        makes_function=True,
        exclusive=(("grainsize", "num_tasks"), ("nogroup", "reduction")),
        refused=f"collapse lastprivate {_TASK_REFUSED}",
    ),
    _omp("taskgroup", Form.STAYS, "task_reduction", stands_for="taskgroup", refused="allocate"),
    _omp(
        "taskgraph",
        Form.CALLED,
        "graph_id graph_reset if nogroup",
        stands_for="taskgraph",
        makes_function=True,
    ),
    _omp(
        "taskwait",
        Form.ALONE,
        "depend nowait",
        stands_for="taskwait",
        clause_needs={"nowait": "depend"},
        refused="replayable",
    ),
    _omp("taskyield", Form.ALONE, stands_for="taskyield"),
    _omp("barrier", Form.ALONE, stands_for="barrier"),
    _omp(
        "flush",
        Form.ALONE,
        " ".join(_ORDERS),
        argument=_row("flush", Takes.DATA),
        exclusive=(_ORDERS,),
        refused="memscope",
    ),
    _omp("cancel taskgroup", Form.ALONE, "if", stands_for="cancel"),
    _omp("cancellation point taskgroup", Form.ALONE, stands_for="cancellation_point"),
    _omp(
        "depobj",
        Form.ALONE,
        "depend update destroy",
        stands_for="depobj",
        argument=_row("depobj", Takes.NAMES, takes_one=True),
        needs_argument=True,
        needs=("depend", "update", "destroy"),
        exclusive=(("depend", "update", "destroy"),),
        refused="init",
    ),
    _omp(
        "interop",
        Form.ALONE,
        "init use destroy depend device",
        stands_for="interop",
        needs=("init", "use", "destroy"),
        exclusive=(("init", "use", "destroy"),),
        refused="nowait",
    ),
    _omp("parallel", Form.STAYS, _PARALLEL, refused=_PARALLEL_REFUSED),
    _omp("parallel masked", Form.STAYS, f"{_PARALLEL} filter", refused=_PARALLEL_REFUSED),
    _omp("masked", Form.STAYS, "filter"),
    _omp(
        "single",
        Form.STAYS,
        "private firstprivate copyprivate nowait",
        exclusive=(("copyprivate", "nowait"),),
        refused="allocate",
    ),
    _omp("critical", Form.STAYS, "hint", argument=_row("critical", Takes.NAMES, takes_one=True)),
    _omp(
        "atomic",
        Form.STAYS,
        f"read write update capture compare hint weak {' '.join(_ORDERS)}",
        exclusive=(("read", "write", "update"), ("read", "write", "capture"), ("read", "write", "compare"), _ORDERS),
        is_inner_too=True,
        refused="fail memscope",
    ),
    _omp("sections", Form.STAYS, "nowait", refused="private firstprivate lastprivate reduction allocate"),
    _omp("parallel sections", Form.STAYS, f"{_PARALLEL} nowait", refused=f"{_PARALLEL_REFUSED} lastprivate"),
    _omp("section", Form.SECTION, stands_for="task"),
    *(
        _omp(
            name,
            Form.NEST,
            _TARGET_LOOP_CLAUSES,
            stands_for="target_loop",
            refused=f"{_LOOP_REFUSED} in_reduction uses_allocators device_type replayable",
        )
        for name in _TARGET_LOOPS
    ),
    *(_omp(name, Form.NEST, _LOOP_CLAUSES, stands_for="parallel_loop", refused=_LOOP_REFUSED) for name in _HOST_LOOPS),
    *(
        _omp(name, Form.NEST, _LOOP_CLAUSES, stands_for="parallel_loop", is_inner_too=True, refused=_LOOP_REFUSED)
        for name in _INNER_LOOPS
    ),
)

_DATA: Final = ("copy", "copyin", "copyout", "create", "present", "no_create", "deviceptr", "attach")
_COMPUTE: Final = (
    f"{' '.join(_DATA)} async wait if self default private firstprivate reduction num_gangs num_workers vector_length"
)
_LEVELS: Final = "gang worker vector seq independent auto collapse tile"
_SEQUENTIAL: Final = (
    ("seq", "independent", "auto"),
    *(("seq", level) for level in ("gang", "worker", "vector")),
)

_ACC: Final = (
    *(
        _acc(name, Form.TAKEN, _COMPUTE, stands_for=f"acc.{name}", makes_function=True, refused="device_type")
        for name in ("parallel", "kernels", "serial")
    ),
    _acc(
        "data",
        Form.STAYS,
        f"{' '.join(_DATA)} async wait if default",
        stands_for="acc.data",
        needs=(*_DATA, "default"),
        refused="device_type",
    ),
    _acc("host_data", Form.STAYS, "use_device if if_present", stands_for="acc.host_data", needs=("use_device",)),
    _acc(
        "enter data",
        Form.ALONE,
        "copyin create attach async wait if",
        stands_for="acc.enter_data",
        needs=("copyin", "create", "attach"),
    ),
    _acc(
        "exit data",
        Form.ALONE,
        "copyout delete detach finalize async wait if",
        stands_for="acc.exit_data",
        needs=("copyout", "delete", "detach"),
    ),
    _acc(
        "update",
        Form.ALONE,
        "self device if_present async wait if",
        stands_for="acc.update",
        needs=("self", "device"),
        refused="device_type",
    ),
    _acc("wait", Form.ALONE, "async if", stands_for="acc.wait", argument=ACC_CLAUSES["wait"]),
    _acc("init", Form.ALONE, "device_type device_num if", stands_for="acc.init"),
    _acc("shutdown", Form.ALONE, "device_type device_num if", stands_for="acc.shutdown"),
    _acc(
        "set",
        Form.ALONE,
        "default_async device_num device_type if",
        stands_for="acc.set_default_async",
        needs=("default_async", "device_num", "device_type"),
    ),
    *(
        _acc(
            f"{name} loop",
            Form.NEST,
            f"{_COMPUTE} {_LEVELS}",
            stands_for="acc.kernels_loop" if name == "kernels" else "acc.parallel_loop",
            exclusive=_SEQUENTIAL,
            refused="device_type",
        )
        for name in ("parallel", "serial", "kernels")
    ),
    _acc(
        "loop",
        Form.INNER,
        f"{_LEVELS} private reduction",
        stands_for="acc.loop",
        is_inner_too=True,
        exclusive=_SEQUENTIAL,
        refused="device_type",
    ),
    _acc(
        "cache",
        Form.INNER,
        argument=_row("cache", Takes.DATA, modifiers={"readonly": False}),
        needs_argument=True,
        is_inner_too=True,
    ),
    _acc(
        "atomic",
        Form.INNER,
        "read write update capture",
        exclusive=(("read", "write", "update"), ("read", "write", "capture")),
        is_inner_too=True,
    ),
)

DIRECTIVES: Final[Mapping[tuple[Language, str], DirectiveRow]] = MappingProxyType(
    {(row.language, row.name): row for row in (*_OMP, *_ACC)}
)
"""Every directive that offload supports."""


def row_of(directive: Directive) -> DirectiveRow:
    """Return the row of a parsed directive."""
    return DIRECTIVES[directive.language, directive.name]
