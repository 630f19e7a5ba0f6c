"""The fixes of the rules: which clause or call is missing, and where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.sanitizer.authors import Doing
from offload.sanitizer.findings import Remedy
from offload.sanitizer.states import FindingRule

if TYPE_CHECKING:
    from offload.sanitizer.authors import Author, Place
    from offload.sanitizer.mappings import ListItem, MadeBy
    from offload.sanitizer.states import Fault

# The clause that a mapping needs, by the map type that it has: to copy back besides, and to copy to the device besides.
_COPY_BACK = {"to": "tofrom", "tofrom": "tofrom", "alloc": "from", "from": "from"}
_COPY_IN = {"to": "to", "tofrom": "tofrom", "alloc": "to", "from": "tofrom"}
_OF_ACC = {"to": "copyin", "from": "copyout", "tofrom": "copy", "alloc": "create", "release": "delete"}
_OF_PYTHON = {"from": "from_"}

_UNSTRUCTURED = ("enter", "exit", "copyin", "create", "copyout", "delete")
"""Words in the names of the constructs that begin or end a mapping without a region."""


def remedy_for_fault(fault: Fault, read: Author, by: MadeBy, ended: Author | None, name: str) -> Remedy:
    """Return the fix of a read of bytes that are newer elsewhere, or that nobody has written.

    Parameters
    ----------
    fault : Fault
        The fault.
    read : Author
        The access that reads.
    by : MadeBy
        The construct that has made the mapping, and its list item or the list item of ``ended``.
    ended : Author or None
        The construct that has ended the mapping, if it has ended.
    name : str
        The name of the array in the finding.
    """
    made, map_type = by.author, by.item.map_type
    if fault.rule is FindingRule.STALE_DEVICE:
        return _update("to", read, by.on, read.call)
    if fault.rule is FindingRule.STALE_HOST:
        if ended is None:
            return _update("from", read, by.on, read.call)
        return _map(_COPY_BACK.get(map_type, "from"), ended, by.item, name)
    copies_in = _map(_COPY_IN.get(map_type, "to"), made, by.item, name)
    if not is_unstructured(made):
        return copies_in
    update = _update("to", made, by.on, read.call if read.doing is not Doing.HOST else made.call)
    # The update copies at each read, what the host has by then. The map copies once, what the host has at the entry.
    shown = f"{copies_in.shown}, or call {update.text} before {update.file}:{update.line}"
    return update._replace(shown=shown, item=copies_in.item, is_string=copies_in.is_string)


def remedy_for_race(first: Author, second: Author, *, left: Place | None, waits: bool, is_child: bool) -> Remedy:
    """Return the fix of a race.

    Parameters
    ----------
    first, second : Author
        The accesses, as the program has generated them.
    left : tuple of str and int, or None
        The clauses of the host task that has left one of them on a stream.
    waits : bool
        Whether the second is by code that has generated the first, so that it can wait for it.
    is_child : bool
        Whether a task has generated the first, and the code of the second has generated that task.
    """
    if left is not None:
        file, line = left
        shown = f"add detach=event to the task at {file}:{line}, and call event.fulfill_on(stream) in its body"
        return Remedy("detach", "detach=event, and event.fulfill_on(stream) in the body", *left, shown)
    here = second.side.file, second.side.line
    if second.doing is Doing.STREAM:
        text = "stream.wait_event(event)" if first.doing is Doing.STREAM else "task.wait_on(stream)"
        return Remedy("wait", text, *here)
    if first.doing is Doing.STREAM:
        return Remedy("wait", "stream.synchronize()", *here)
    if waits:
        text = "acc.wait()" if first.is_acc else "barrier()" if is_child and not second.directive else "taskwait()"
        return Remedy("wait", text, *here)
    return Remedy("depend", "depend=[inout({})]", *second.clauses)


def remedy_for_leak(place: Place, on: int | None, *, is_mapped: bool, is_acc: bool, waits: bool) -> Remedy:
    """Return the fix of storage that is left at the end; ``waits`` says whether its last use has to be waited for."""
    if not is_mapped:
        kind, text = "free", "acc.free({})" if is_acc else "target_free({})"
    else:
        kind = "map"
        text = "acc.exit_data(delete=[{}])" if is_acc else f"target_exit_data(map=[release({{}})]{_device(on)})"
    wait = f"{'acc.wait' if is_acc else 'taskwait'}() and then " if waits else ""
    file, line = place
    return Remedy(kind, text, file, line, f"call {wait}{text} after {file}:{line}")


def is_unstructured(author: Author) -> bool:
    """Tell whether an author is a construct that begins or ends a mapping without a region."""
    return any(word in author.directive for word in _UNSTRUCTURED)


def _update(direction: str, author: Author, on: int | None, place: Place) -> Remedy:
    if author.is_acc:
        text = "acc.update(device=[{}])" if direction == "to" else "acc.update(self_=[{}])"
    else:
        text = f"target_update({'to' if direction == 'to' else 'from_'}=[{{}}]{_device(on)})"
    return Remedy("update", text, *place)


def _device(number: int | None) -> str:
    return "" if number is None else f", device={number}"


def _map(map_type: str, author: Author, item: ListItem, name: str) -> Remedy:
    """Return the fix of a map type, in the construct that an author is, or in the mapper that has named the array."""
    file, line = item.mapper or author.clauses
    text = f"{_OF_ACC[map_type]}({{}})" if author.is_acc else f"map({map_type}: {{}})"
    if item.mapper is not None:
        name = f"{item.name}.{name.partition('.')[2] or name}"
        was, now = (_OF_PYTHON.get(one, one) for one in (item.map_type, map_type))
        shown = f"change {was}({{}}) to {now}({{}}) in the mapper at {file}:{line}"
        return Remedy("map", text, file, line, shown, name)
    was, now = (_spelled(one, author) for one in (item.map_type, map_type))
    if item.is_implicit:
        clause = now if author.is_acc or author.is_string else f"map=[{now}]"
        shown = f"add {clause} at {file}:{line}"
    else:
        shown = f"change {was} to {now} at {file}:{line}"
    return Remedy("map", text, file, line, shown, item.name, item.is_string and not author.is_string)


def _spelled(map_type: str, author: Author) -> str:
    """Return a clause or an item of a map type as the construct of an author spells it."""
    if author.is_acc:
        name = _OF_ACC.get(map_type, map_type)
        return f"{name}({{}})" if author.is_string else f"{name}=[{{}}]"
    return f"map({map_type}: {{}})" if author.is_string else f"{_OF_PYTHON.get(map_type, map_type)}({{}})"
