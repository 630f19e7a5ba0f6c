"""The allocator that the device blocks of this process's CUDA devices come from, as the program has chosen it.

This file imports no CuPy: a program chooses before there is a device, or where there is none.
"""

from __future__ import annotations

import sys
import threading
from typing import Any
from weakref import WeakSet

from offload.errors import ClauseError, UsageError

OWN = "offload"  # blocks of a driver's pool of our own; see `offload.devices.cuda.memory`

NAMES = (OWN, "torch", "cupy", "rmm")


class _Choice:
    """The allocator in use, and the devices that use it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # held while pools are made
        self.name = OWN
        self.users: WeakSet[Any] = WeakSet()  # the memory of each open CUDA device


_choice = _Choice()


def choose(name: object) -> None:
    """Have new blocks of all CUDA devices of the process come from an allocator; None is the default.

    Raise `ClauseError` for an unknown name, and `UsageError` if a CUDA device is open and the program has
    not imported the library. Then all is as before.
    """
    if name is None:
        name = OWN
    if not isinstance(name, str) or name not in NAMES:
        raise ClauseError(
            f"use_allocator({name!r:.60}): the name is not an allocator's; use "
            f"{', '.join(repr(each) for each in NAMES)}, or None for the default"
        )
    with _choice.lock:
        users = list(_choice.users)
        pools = [user.make_pool(name) for user in users]
        _choice.name = name
        for user, pool in zip(users, pools, strict=True):
            user.take_from(pool)


def enter(user: Any) -> None:
    """Give a `DeviceMemory`, of a device that is being opened, its pool, and have it follow later choices."""
    with _choice.lock:  # no choice comes in between
        user.take_from(user.make_pool(_choice.name))
        _choice.users.add(user)


def leave(user: Any) -> None:
    """Leave a `DeviceMemory` as it is from now on: the device is closed."""
    with _choice.lock:
        _choice.users.discard(user)


def library(name: str) -> Any:
    """Return the library of an allocator; raise `UsageError` if the program has not imported it."""
    module = sys.modules.get(name)
    if module is None:
        raise UsageError(f"use_allocator({name!r}): the program has not imported {name}; import it first")
    return module
