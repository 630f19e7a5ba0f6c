"""The fix of a race between tasks: the ``depend`` clauses that are missing, each with the line where it belongs.

Only siblings follow each other because of `depend`. So the clauses belong on the two tasks that the code which has
generated both sides has generated itself. A side that is a child of such a task needs a wait at the end of that task
besides.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from offload.sanitizer.elements import byte_bounds
from offload.sanitizer.memory import array_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offload.sanitizer.states import Run, Runs
    from offload.tasks.depend import Access

    Params = tuple[tuple[str, Run], ...]
    """The parameters of a body that are arrays, and the bytes that they hold."""

    Given = tuple[tuple[str, "tuple[Run, ...] | None"], ...]
    """The types of a task's dependences and the bytes that they name; None stands for all memory."""


class Need(NamedTuple):
    """The dependence of one side of a race on one array.

    Attributes
    ----------
    side : int
        0 for the first side, 1 for the second one.
    file, line : str, int
        The place of the clauses.
    task : str
        The name of the task; empty for code that waits.
    item : str
        The name of the array there; empty: as the finding has it.
    is_string : bool
        Whether it is the name of a parameter, which a clause gives as a string.
    writes : bool
        Whether the side writes.
    has : tuple of str
        The types of the dependences on it that the task has.
    has_clause : bool
        Whether the task has dependences at all.
    is_directive : bool
        Whether the clauses are those of a directive string.
    ends_early : bool
        Whether the task ends before the side, which is the work of a child.
    """

    side: int
    file: str
    line: int
    task: str
    item: str
    is_string: bool
    writes: bool
    has: tuple[str, ...] = ()
    has_clause: bool = False
    is_directive: bool = False
    ends_early: bool = False


def params_of(task: Any) -> Params:
    """Return the parameters of a task's body that are arrays."""
    body, names = task.body, ()
    code = getattr(body, "__code__", None)
    if code is not None:
        names = code.co_varnames[: code.co_argcount]
        if getattr(body, "__self__", None) is not None:
            names = names[1:]
    found = []
    for name, value in (*zip(names, task.args, strict=False), *(task.kwargs or {}).items()):
        array = array_in(value)
        if array is not None:
            found.append((name, byte_bounds(array)))
    return tuple(found)


def given_by(accesses: Iterable[Access]) -> Given:
    """Return the dependences of clauses, without their arrays."""
    found: list[tuple[str, tuple[Run, ...] | None]] = []
    for access in accesses:
        keys: Any = access.keys
        runs = None if keys is None else tuple([(key.address, key.end) for key in keys if hasattr(key, "run_nbytes")])
        found.append((access.type.value, runs))
    return tuple(found)


def need_of(course: _Course, place: tuple[str, int], runs: Runs, *, side: int, writes: bool, is_child: bool) -> Need:
    """Return the dependence that a task needs for its side of a race; ``place`` is the place of the task's clauses."""
    low, high = runs[0][0], runs[-1][1]
    inside = [(hi - lo, name) for name, (lo, hi) in course.params if lo <= low and high <= hi]
    name = min(inside)[1] if inside and not course.construct.is_call else ""
    has = tuple(
        dict.fromkeys(
            kind
            for kind, named in course.given
            if named is None or any(lo < hi_ and lo_ < hi for lo, hi in named for lo_, hi_ in runs)
        )
    )
    return Need(
        side,
        *place,
        course.name,
        name,
        bool(name),
        writes,
        has,
        bool(course.given),
        is_directive(course.construct),
        is_child,
    )


def is_directive(construct: Any) -> bool:
    """Tell whether a construct is a directive string's: its name says which one."""
    return re.search(r"<(omp|acc) ", str(construct.name)) is not None


class _Course(Protocol):
    """The course of a task (`offload.sanitizer.courses`)."""

    name: str
    construct: Any
    params: Params
    given: Given


class _Clause:
    """A dependence on one array of one task, for all accesses of a finding."""

    def __init__(self, need: Need) -> None:
        self.need = need
        self.sides = {need.side}
        self.writes = {need.writes}
        self.has = {*need.has}

    def add(self, need: Need) -> None:
        self.sides.add(need.side)
        self.writes.add(need.writes)
        self.has.update(need.has)

    @property
    def type(self) -> str:
        """The type that orders the accesses; one that reads already goes on reading."""
        if self.writes == {False}:
            return "in_"
        return "out" if self.writes == {True} and "in" not in self.has else "inout"

    @property
    def is_there(self) -> bool:
        return bool(self.has - {"in"}) or (self.type == "in_" and "in" in self.has)

    def term(self, kind: str = "") -> str:
        if self.need.is_directive:
            return f"depend({(kind or self.type).rstrip('_')}: {self.need.item})"
        name = f'"{self.need.item}"' if self.need.is_string else self.need.item
        return f"{kind or self.type}({name})"


def clauses_fix(needs: Iterable[Need]) -> tuple[str, str, int, str]:
    """Return the fix of a race between tasks: the text, the file and the line to edit, and the report's words."""
    clauses = _clauses(needs)
    missing = [clause for clause in clauses if not clause.is_there] or clauses
    texts, words = [*_texts(missing)], [*_words(missing)]
    for task in dict.fromkeys(clause.need.task for clause in clauses if clause.need.ends_early):
        texts.append(f"taskwait() at the end of {task}")
        words.append(f"call taskwait() at the end of {task}")
    last = missing[-1].need
    return ", ".join(texts), last.file, last.line, " and ".join(words)


def waiting_fix(needs: Iterable[Need], file: str, line: int) -> tuple[str, str, int, str]:
    """Return the fix of a race with code that can wait, but not for all tasks: for those that a clause names."""
    clauses = _clauses(needs)
    wait = ", ".join(clause.term() for clause in clauses if not clause.need.task)
    missing = [clause for clause in clauses if clause.need.task and not clause.is_there]
    call = f"taskwait(depend=[{wait}])"
    text = ", ".join([call, *_texts(missing)])
    return text, file, line, " and ".join([*_words(missing), f"call {call} before {file}:{line}"])


def _clauses(needs: Iterable[Need]) -> list[_Clause]:
    """Return the clauses of accesses, the first side's first."""
    found: dict[tuple[Any, ...], _Clause] = {}
    for need in sorted(needs):
        key = need.file, need.line, need.task, need.item
        if key in found:
            found[key].add(need)
        else:
            found[key] = _Clause(need)
    return [*found.values()]


def _by_task(clauses: Iterable[_Clause]) -> Iterator[list[_Clause]]:
    found: dict[tuple[Any, ...], list[_Clause]] = {}
    for clause in clauses:
        need = clause.need
        found.setdefault((need.file, need.line, need.task), []).append(clause)
    yield from found.values()


def _texts(clauses: Iterable[_Clause]) -> Iterator[str]:
    for those in _by_task(clauses):
        terms = ", ".join(clause.term() for clause in those)
        terms = terms if those[0].need.is_directive else f"depend=[{terms}]"
        yield f"{terms} on {those[0].need.task}{_twice(those)}"


def _words(clauses: Iterable[_Clause]) -> Iterator[str]:
    for those in _by_task(clauses):
        need = those[0].need
        place = f"{need.task} at {need.file}:{need.line}{_twice(those)}"
        changed = [clause for clause in those if "in" in clause.has]
        added = [clause for clause in those if "in" not in clause.has]
        for clause in changed:
            where = "of" if need.is_directive else "in depend of"
            yield f"change {clause.term('in_')} to {clause.term()} {where} {place}"
        if added:
            terms = ", ".join(clause.term() for clause in added)
            if need.is_directive:
                yield f"add {terms} to {place}"
            else:
                yield f"add {terms} to depend of {place}" if need.has_clause else f"add depend=[{terms}] to {place}"


def _twice(clauses: Iterable[_Clause]) -> str:
    return ", called twice" if any(len(clause.sides) > 1 for clause in clauses) else ""
