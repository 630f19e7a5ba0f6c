"""Blocks: the code to which a ``with`` that changes a region of tasks applies.

Theory of operation
-------------------
In a block of ``taskgroup``, ``target_data``, ``acc.data`` or ``record`` a region that generates tasks does more: its
tasks belong to a group, are recorded, have data around them. Plain functions nest, and so do their blocks: the frame
itself is changed until the block ends. Coroutines and generators take turns on a thread, each in the middle of its
blocks. So a block belongs to the coroutine or generator that has entered it (`owner_of`), and makes a `Part` of the
frame, which replaces the frame while the owner's code, or code that it calls, runs.

*A coroutine's* part is in its context, in a scope of its own. Code that copies the context, such as asyncio's tasks and
callbacks made in the block, belongs to the block too. After the block's end it belongs to the block around.

*A generator*, an asynchronous one too, runs in the context of the code that advances it. Its blocks are listed in
`owned`, and a construct looks for the generator's frame on the stack. A task generated there has the dependences and
the recorder of the code that advances the generator, and the group and the default device of the block.

*The body of a task* begins anew: neither search goes further out than that.

A block that ends takes itself away wherever it stands, and restores nothing: others may have begun or ended since.
"""

from __future__ import annotations

import sys
from operator import is_
from typing import TYPE_CHECKING, Any

from offload.tasks.region import Inherited, Part
from offload.tasks.scope import Scope, current_scope
from offload.tasks.stack import COROUTINE, owned, owner_of

if TYPE_CHECKING:
    from types import CodeType

    from offload.tasks.region import Region


class Block:
    """The changes of a block, from its making to `leave`.

    Parameters
    ----------
    nests : bool
        Whether the block begins and ends in one call of the library's own, which nothing can suspend.

    Attributes
    ----------
    frame : Region
        The region as the block's code sees it, to be changed: a part of that around, or where blocks nest that itself.
    recorder : object or None
        The recorder, if this is the block that records.
    """

    __slots__ = ("_around", "_former", "_inner", "_key", "_seen", "_whole", "code", "frame", "mark", "recorder")

    def __init__(self, scope: Scope, frame: Region, *, nests: bool = False) -> None:
        self.frame = self._whole = frame
        self.recorder: Any = None
        self._inner: Scope | None = None
        self._key = 0
        owner = None if nests else owner_of(sys._getframe(1))  # noqa: SLF001  # as `call_site` does
        if owner is None:
            return
        self.mark = object()
        self.frame = Part(frame, self.mark)
        self.code: CodeType = owner.f_code
        if self.code.co_flags & COROUTINE:
            self._former = scope
            self._inner = scope.beside(self.frame, scope.task)
            current_scope.set(self._inner)
            return
        self._seen = frame.children, frame.tracker, frame.recorder
        self._key = id(owner)
        around: Any = owned.get(self._key)
        self._around: Block | None = around if around is not None and around.code is self.code else None
        owned[self._key] = self

    def seen_from(self, region: Region) -> Region:
        """Return the region that replaces a region in the block of a generator that is advanced there."""
        if self._around is not None:
            region = self._around.seen_from(region)
        part = self.frame
        seen = region.children, region.tracker, region.recorder
        if all(map(is_, seen, self._seen)):
            return part
        self._seen = seen  # what the block's own code changes, for a task graph, stays until these do
        if part.children is not region.children:  # another thread or body than before
            inherited = part.inherited
            part = Part(region, self.mark)
            part.inherit(Inherited(inherited.default_device, inherited.group, is_final=region.inherited.is_final))
            part.listed = self.frame.listed
            self.frame = part
        part.tracker = region.tracker
        part.record(self.recorder or region.recorder)
        return part

    def leave(self) -> None:
        """Have the block apply to nothing any more; where blocks nest, who has changed the frame changes it back."""
        part = self.frame
        if not isinstance(part, Part) or part is self._whole or part.is_over:
            return
        part.end()
        whole = self._whole
        while whole.is_over:
            whole = whole.whole
        number = part.inherited.default_device
        if number != part.first_default_device:  # set inside; the setting outlasts the block, as in any other
            whole.inherit(Inherited(number, whole.inherited.group, is_final=whole.inherited.is_final))
        if self._inner is None:
            self._unlist()
        elif current_scope.get() is self._inner:  # else it is left in another context, or not the innermost
            current_scope.set(self._former)

    def _unlist(self) -> None:
        block: Any = owned.get(self._key)
        if block is self:
            if self._around is None:
                del owned[self._key]
            else:
                owned[self._key] = self._around
            return
        while block is not None:
            if block._around is self:  # noqa: SLF001  # its own kind
                block._around = self._around  # noqa: SLF001  # the same
            block = block._around  # noqa: SLF001  # the same
