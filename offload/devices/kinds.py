"""The kinds of devices that are known, by name.

CUDA and the simulated device are known from the start. Another kind is one file outside of the package: it calls
`register` when it is imported, or its distribution has an entry point of the group ``offload.devices``, named like the
kind, which is looked for when a name is not known::

    [project.entry-points."offload.devices"]
    mine = "my_package.device:MyKind"
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from offload.devices.cuda.kind import CudaKind
from offload.devices.kind import Kind
from offload.devices.sim.kind import SimKind
from offload.errors import ClauseError, DeviceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoints

ENTRY_POINTS = "offload.devices"  # The group of entry points whose names are kinds of devices

_NAME = re.compile(r"[a-z][a-z0-9_]*")
# Words that mean something else where kinds and OpenACC's types of devices are named.
_TAKEN = frozenset({"none", "host", "default", "not_host"})

_kinds: dict[str, Kind] = {kind.name: kind for kind in (CudaKind(), SimKind())}


def register(kind: Kind) -> None:
    """Have a kind of device known by its name, to every runtime that is made from now on.

    Raises
    ------
    ClauseError
        It is no `Kind`, or its name, the name of its type in OpenACC, or one of its variables is none or is taken.
    """
    if not isinstance(kind, Kind):
        raise ClauseError(f"register: {kind!r:.60} is not a kind of device; pass an object of a subclass of Kind")
    names: list[tuple[Any, str]] = [(getattr(kind, "name", None), "a kind")]
    if kind.acc_type is not None:
        names.append((kind.acc_type, "a type of device"))
    for name, what in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _TAKEN:
            raise ClauseError(
                f"register: {name!r:.40} is not a valid name of {what}; use lower-case letters, digits and _"
            )
    for other in _kinds.values():
        shared = _words_of(kind) & _words_of(other)
        if shared:
            raise ClauseError(f"register: the kind {other.name!r} has {min(shared)!r} already; use another name")
    for name in kind.variables:
        if not name.startswith("OFFLOAD_"):
            raise ClauseError(f"register: {name!r:.40} is not a valid name of a variable; it must begin with OFFLOAD_")
    _kinds[kind.name] = kind


def find(name: str) -> Kind | None:
    """Return the kind of a name, in lower case, or None; entry points count.

    Raise `DeviceUnavailableError` if the entry point cannot be loaded, and `ClauseError` if it has no kind of that
    name.
    """
    kind = _kinds.get(name)
    if kind is not None or not _NAME.fullmatch(name):
        return kind
    for entry_point in _entry_points().select(name=name):
        try:
            found = entry_point.load()
        except Exception as error:
            raise DeviceUnavailableError(
                f"devices of kind {name!r} need {entry_point.value!r}, which cannot be imported ({error!r:.200})"
            ) from error
        if name in _kinds:  # the import has registered it
            break
        made = found() if isinstance(found, type) else found
        if getattr(made, "name", None) != name:
            raise ClauseError(
                f"the entry point {name!r} ({entry_point.value}) is {made!r:.60}, not a kind of that name"
            )
        register(made)
        break
    return _kinds.get(name)


def known() -> Iterator[Kind]:
    """Yield the kinds that are known, CUDA and the simulated device first."""
    yield from list(_kinds.values())


def known_as(name: str) -> Kind | None:
    """Return the kind that a device says it is of, if that is known."""
    return _kinds.get(name)


def find_acc_type(word: str) -> Kind | None:
    """Return the kind that OpenACC knows by a word in lower case; None if there is none.

    One that only an entry point has is found if that is named like the type. Raises as `find`.
    """
    for kind in known():
        if kind.acc_type == word:
            return kind
    found = None if word in _TAKEN else find(word)
    return found if found is not None and found.acc_type == word else None


def words() -> str:
    """Return the allowed specifications of devices, for messages."""
    told = [f"{kind.name}, {kind.name}:{'0,2' if kind.has_indices else '4'}" for kind in known()]
    told += sorted({entry_point.name for entry_point in _entry_points()} - _kinds.keys())
    return ", ".join(told)


def _words_of(kind: Kind) -> set[str]:
    """Return the words that no other kind may have."""
    return {kind.name, *kind.variables, *([] if kind.acc_type is None else [f"{kind.acc_type} of OpenACC"])}


def _entry_points() -> EntryPoints:
    from importlib.metadata import entry_points  # 15 ms of the time of `import offload`, for a name that is unknown

    return entry_points(group=ENTRY_POINTS)
