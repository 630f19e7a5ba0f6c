"""Messages of constructs with their clauses as directives spell them: ``reduction(+: s)``.

Constructs and loops name clauses as keyword arguments. In a program of directive strings, the same error is raised
through `offload.pragma`, which changes its text here. The class and the attributes of the error stay.
"""

from __future__ import annotations

import re
from typing import Final

from offload.errors import OffloadError, PragmaError

_CLAUSES: Final = (
    "reduction in_reduction task_reduction private firstprivate lastprivate shared collapse tile map depend nowait "
    "device if_ num_threads num_teams thread_limit num_gangs num_workers vector_length schedule seq independent gang "
    "worker vector copy copyin copyout create present no_create deviceptr attach async_ wait detach priority final "
    "grainsize num_tasks nogroup to from_ is_device_ptr"
)
_KEYWORD: Final = re.compile(
    rf"(?<![\w.(])({'|'.join(_CLAUSES.split())})=(\{{[^{{}}]*\}}|\[[^\[\]]*\]|[^\s,;:)\[{{]+|(?=[\s,;:)]|$))"
)
_OF_OPERATOR: Final = re.compile(r"""(['"])(?P<operator>[^'"]*)\1: \[(?P<items>[^\[\]]*)\]""")
_DEPENDENCE: Final = re.compile(r"(in|out|inout|mutexinoutset|inoutset)_?\(([^()]*)\)")
_ATOMIC: Final = re.compile(r"atomic=\[([^\[\]]*)\]")

_IN_ORDER: Final = {"acc": "write seq", "target_loop": 'write acc("serial loop")'}
_NO_ORDER: Final = "leave the directive out"

_NUMBER: Final = r"((?:float|int|complex|bool)\d* \S+ is not an array); map arrays, views, section\(…\) or an object .*"
_IN_GROUP: Final = r"put the call into `with offload\.taskgroup\(task_reduction=\{'(.*?)': \[that array\]\}\):`"
_ONE_ELEMENT: Final = "use an array of one element: s = np.zeros(1), and s[0]"

# Regular expressions of advice that keyword arguments alone can carry out, and the advice for directives.
_PHRASES: Final = (
    (
        r", reduction= if it is one element, check=True .*, or independent=True if there are none",
        ", or reduction if it is one element",
    ),
    (r"(place_\d+) if \1 >= 0 else \1 - \d+", "…"),  # an index into a section, as `nest_sections` guards it
    (
        r"; pass the section that is present, or map all of it there",
        "; name the section that is present in a map clause of this directive, or map all of it there",
    ),
    (r"to the construct\b", "to the directive"),
    (r"use seq=True, or private= for", "use seq=True, or use private for"),
    (r", or use `assert` with check=True", ""),
    (r"add reassociate=True if (.*) may be rounded otherwise than in order", r"floats are combined in order: \1"),
    (_IN_GROUP, r'put the block into `with omp("taskgroup task_reduction(\1: …)"):`'),
    (_NUMBER, rf"\1; map the number on the target construct itself, or {_ONE_ELEMENT}"),
    (r"is a (\w+), not an array; update arrays, views or section\(…\)", rf"is a \1, not an array; {_ONE_ELEMENT}"),
    (
        r"interop: .* outside the block; write `with offload\.interop\(…\) as …:`",
        "interop: the object has been destroyed; make another with init(targetsync: o)",
    ),
    (
        r"so create another event",
        "so write `event = None` before the block, and detach makes a new one",
    ),
)


def in_directives(message: str, construct: str) -> str:
    """Return a message with its clauses in the spelling of directives.

    Parameters
    ----------
    message : str
        The message of a construct or a loop.
    construct : str
        The construct of the directive: ``"target_loop"``, ``"acc.parallel_loop"``, ``"task"`` …

    Returns
    -------
    str
        The message; the same one if it names no clause.

    Examples
    --------
    >>> in_directives('add reduction={"+": ["s"]} to the construct', "parallel_loop")
    'add reduction(+: s) to the construct'
    """
    for pattern, text in _PHRASES:
        message = re.sub(pattern, text, message)
    in_order = _IN_ORDER["acc"] if construct.startswith("acc") else _IN_ORDER.get(construct, _NO_ORDER)
    message = re.sub(r"(?:use|add) seq=True", in_order, message)
    message = _ATOMIC.sub(lambda found: f"atomic around each update of {_items(found[1])}", message)
    return _KEYWORD.sub(_clause, message)


def reword(error: OffloadError, construct: str) -> None:
    """Give the message of an error the spelling of directives, in place."""
    if not isinstance(error, PragmaError) and error.args and isinstance(error.args[0], str):
        error.args = (in_directives(error.args[0], construct), *error.args[1:])


def _clause(found: re.Match[str]) -> str:
    """Return the clause of a string for a keyword argument."""
    name, value = found[1].removesuffix("_"), found[2]
    if value.startswith("{"):
        reductions = [f"{name}({one['operator']}: {_items(one['items'])})" for one in _OF_OPERATOR.finditer(value)]
        return " ".join(reductions) or name
    if value.startswith("["):
        return f"{name}({_DEPENDENCE.sub(lambda one: f'{one[1]}: {one[2]}', _items(value[1:-1]))})"
    return name if value in ("", "True") else f"{name}({value})"


def _items(text: str) -> str:
    return text.replace('"', "").replace("'", "")
