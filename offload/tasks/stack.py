"""The owners of running code: coroutines and generators on Python's stack, and the blocks that generators are in.

`offload.tasks.blocks` describes the purpose. The code here keeps no frame: a generator that is suspended in a block
keeps its own, so that the frame's identity stands for it until the block has ended.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Protocol

from offload.interrupts.frames import is_calling_program, is_own

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from offload.tasks.region import Region


class Owned(Protocol):
    """A block that a generator has entered.

    Attributes
    ----------
    code : CodeType
        The generator's: a frame of other code has only the same identity.
    mark : object
        The object that identifies the parts of this block.
    """

    code: CodeType
    mark: object

    def seen_from(self, region: Region) -> Region:
        """Return the region that replaces a region in the block."""


owned: dict[int, Owned] = {}
"""The blocks that generators are in: of each the innermost, by the identity of the generator's frame.

While there is one, whoever generates a task has to look at the stack, on every thread: a generator goes anywhere.
"""

COROUTINE = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_SUSPENDABLE = COROUTINE | _GENERATOR
_CONTEXTLIB = vars(contextlib)


def owner_of(caller: FrameType | None) -> FrameType | None:
    """Return the frame of the coroutine or generator that a block belongs to; None where there is none.

    That is the innermost on the stack. The coroutines of this library and of contextlib are not meant, nor is a
    generator that contextlib drives, as under ``@contextmanager``, or that such a generator advances: the code that
    enters that context manager is. A generator expression has no blocks, it enters them for the code that advances it.
    """
    while caller is not None and not is_calling_program(caller):
        if caller.f_code.co_flags & _SUSPENDABLE and not _is_passed_over(caller):
            return caller
        caller = caller.f_back
    return None


def _is_passed_over(frame: FrameType) -> bool:
    if frame.f_globals is _CONTEXTLIB or is_own(frame.f_globals.get("__name__")):
        return True
    while frame.f_code.co_flags & _GENERATOR and frame.f_back is not None:
        if frame.f_code.co_name == "<genexpr>" or frame.f_back.f_globals is _CONTEXTLIB:
            return True
        frame = frame.f_back
    return False


def in_blocks(region: Region, caller: FrameType | None) -> Region:
    """Return the region that replaces a region in the blocks of the generators on the stack, the innermost last."""
    found: list[Owned] = []
    while caller is not None and not is_calling_program(caller):
        block = owned.get(id(caller))
        if block is not None and block.code is caller.f_code:
            if region.is_within(block.mark):
                break  # a coroutine's block, which that one has entered in this one
            found.append(block)
        caller = caller.f_back
    for block in reversed(found):
        region = block.seen_from(region)
    return region
