"""The memory account of a simulated device: how many bytes its arrays hold.

A block stands for one allocation. Every array over it holds the block, and the block gives its bytes back
when the last of them dies, or when it retires, after which every array over it refuses: then the program may still
have some, but nothing is in them. That may be inside a garbage collection, on any thread, while any lock is held:
so giving back only appends to a deque, and the next reader of the account takes the deque in.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from offload.errors import DeviceMemoryError

if TYPE_CHECKING:
    from offload.devices.retirement import Retired


class MemoryAccount:
    """Counts the bytes in use on one device of ``total_nbytes`` bytes."""

    __slots__ = ("_alive_nbytes", "_lock", "_name", "_returned", "_used_nbytes", "total_nbytes")

    def __init__(self, name: str, total_nbytes: int) -> None:
        self.total_nbytes = total_nbytes
        self._name = name
        self._used_nbytes = self._alive_nbytes = 0
        self._returned: deque[tuple[int, int]] = deque()
        self._lock = threading.RLock()  # reentrant: a finaliser run inside it may ask for the account

    def take(self, nbytes: int) -> SimBlock:
        """Charge ``nbytes`` bytes and return the block that stands for them.

        Raises
        ------
        DeviceMemoryError
            Fewer bytes are free. Nothing was charged.
        """
        with self._lock:
            if self._returned:
                self._take_in()
            free_nbytes = self.total_nbytes - self._used_nbytes
            if nbytes > free_nbytes:
                raise DeviceMemoryError(
                    f"cannot allocate {nbytes} bytes on {self._name}: "
                    f"{free_nbytes} of {self.total_nbytes} bytes are free; release device arrays or map less at a time",
                    nbytes,
                    free_nbytes,
                )
            block = SimBlock(self._returned)
            self._used_nbytes += nbytes  # no interruption comes in between these three
            self._alive_nbytes += nbytes
            block.charge.nbytes = nbytes
            return block

    def used_nbytes(self) -> int:
        """Return the bytes held by the blocks that may be used."""
        return self._now()[0]

    def alive_nbytes(self) -> int:
        """Return the bytes of all blocks that somebody has an array of, those that have retired too."""
        return self._now()[1]

    def _now(self) -> tuple[int, int]:
        with self._lock:
            self._take_in()
            return self._used_nbytes, self._alive_nbytes

    def _take_in(self) -> None:
        """Take in the bytes that have been given back, under the lock."""
        returned = self._returned
        while returned:
            used_nbytes, alive_nbytes = returned[0]
            self._used_nbytes -= used_nbytes  # an interruption comes after the removal at the earliest
            self._alive_nbytes -= alive_nbytes
            returned.popleft()


class SimBlock:
    """One allocation, to which each array over it refers; its bytes go back when it retires, or dies.

    Attributes
    ----------
    charge : Charge
        Its bytes. An operation on a stream refers to these, so that `sys.getrefcount` of a block says who has arrays.
    retired : Retired or None
        Its mark: its arrays must not be used any more.
    is_unwritten : bool
        Whether nobody has written an element yet. False in doubt.
    """

    __slots__ = ("charge", "is_unwritten", "retired")

    def __init__(self, returned: deque[tuple[int, int]]) -> None:
        self.charge = Charge(returned)
        self.retired: Retired | None = None
        self.is_unwritten = True

    def retire(self, retired: Retired) -> None:
        """Give the bytes back, and have every array refuse."""
        if self.retired is None:
            self.charge.give_back()
        self.retired = retired


class Charge:
    """The bytes of a block in the account, until neither an array nor an operation on a stream refers to them.

    Attributes
    ----------
    nbytes : int
        As they have been charged.
    """

    __slots__ = ("_is_given_back", "_returned", "nbytes")

    def __init__(self, returned: deque[tuple[int, int]]) -> None:
        self.nbytes = 0
        self._is_given_back = False
        self._returned = returned

    def give_back(self) -> None:
        """Let others have the bytes, although somebody still has an array."""
        self._returned.append((self.nbytes, 0))
        self._is_given_back = True

    def __del__(self) -> None:
        if hasattr(self, "_returned"):  # else an interruption has come before
            self._returned.append((0 if self._is_given_back else self.nbytes, self.nbytes))
