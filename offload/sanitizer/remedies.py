"""The fixes of the rules: which clause or call is missing, and where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.sanitizer.authors import Doing
from offload.sanitizer.findings import Remedy
from offload.sanitizer.states import FindingRule

if TYPE_CHECKING:
    from offload.sanitizer.authors import Author, Place
    from offload.sanitizer.states import Fault

# The clause that a mapping needs, by the map type that it has: to copy back besides, and to copy to the device besides.
_COPY_BACK = {"to": "tofrom", "tofrom": "tofrom", "alloc": "from", "from": "from"}
_COPY_IN = {"to": "to", "tofrom": "tofrom", "alloc": "to", "from": "tofrom"}
_OF_ACC = {"to": "copyin", "from": "copyout", "tofrom": "copy"}

_UNSTRUCTURED = ("enter", "exit", "copyin", "create", "copyout", "delete")
"""Words in the names of the constructs that begin or end a mapping without a region."""


def remedy_for_fault(fault: Fault, read: Author, made: Author, made_type: str, ended: Author | None) -> Remedy:
    """Return the fix of a read of bytes that are newer elsewhere, or that nobody has written.

    Parameters
    ----------
    fault : Fault
        The fault.
    read : Author
        The access that reads.
    made : Author
        The construct that has made the mapping.
    made_type : str
        The map type that it has there, or in the construct that has ended it.
    ended : Author or None
        The construct that has ended the mapping, if it has ended.
    """
    if fault.rule is FindingRule.STALE_DEVICE:
        return _update("to", read, read.call)
    if fault.rule is FindingRule.STALE_HOST:
        if ended is None:
            return _update("from", read, read.call)
        return Remedy("map", _map(_COPY_BACK.get(made_type, "from"), ended), *ended.clauses)
    if is_unstructured(made):
        return _update("to", made, read.call if read.doing is not Doing.HOST else made.call)
    return Remedy("map", _map(_COPY_IN.get(made_type, "to"), made), *made.clauses)


def remedy_for_race(first: Author, second: Author, *, left: Place | None, waits: bool) -> Remedy:
    """Return the fix of a race.

    Parameters
    ----------
    first, second : Author
        The accesses, as the program has generated them.
    left : tuple of str and int, or None
        The clauses of the host task that has left one of them on a stream.
    waits : bool
        Whether the second is by code that has generated the first, so that it can wait for it.
    """
    if left is not None:
        return Remedy("detach", "detach=event, and event.fulfill_on(stream) in the body", *left)
    here = second.side.file, second.side.line
    if second.doing is Doing.STREAM:
        text = "stream.wait_event(event)" if first.doing is Doing.STREAM else "task.wait_on(stream)"
        return Remedy("wait", text, *here)
    if first.doing is Doing.STREAM:
        return Remedy("wait", "stream.synchronize()", *here)
    if waits:
        return Remedy("wait", "acc.wait()" if first.is_acc else "taskwait()", *here)
    return Remedy("depend", "", *second.clauses)


def remedy_for_leak(place: Place, *, is_mapped: bool, is_acc: bool) -> Remedy:
    """Return the fix of storage that is left at the end."""
    if not is_mapped:
        return Remedy("free", "acc.free({})" if is_acc else "target_free({})", *place)
    text = "acc.exit_data(delete=[{}])" if is_acc else "target_exit_data(map=[release({})])"
    return Remedy("map", text, *place)


def is_unstructured(author: Author) -> bool:
    """Tell whether an author is a construct that begins or ends a mapping without a region."""
    return any(word in author.directive for word in _UNSTRUCTURED)


def _update(direction: str, author: Author, place: Place) -> Remedy:
    if author.is_acc:
        text = "acc.update(device=[{}])" if direction == "to" else "acc.update(self_=[{}])"
    else:
        text = "target_update(to=[{}])" if direction == "to" else "target_update(from_=[{}])"
    return Remedy("update", text, *place)


def _map(map_type: str, author: Author) -> str:
    return f"{_OF_ACC[map_type]}({{}})" if author.is_acc else f"map({map_type}: {{}})"
