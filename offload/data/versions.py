"""Facts about the contents of a storage, which hold as long as no construct may change them.

Theory of operation
-------------------
An entry of a present table has one `Contents` at a time, whose number is its version. A construct that may write to the
entry takes that away when it is launched, before it enqueues anything (`offload.data.entries.Entry.change`). Until its
lane is known to have passed that launch the entry has no contents: no fact is remembered of it, and no old fact is
used. The next request makes other contents, with a new number.

So a fact is found after all writes that were launched before, and it is used until the next write is launched. If a
write comes in between, the fact is entered into contents that are no longer used. A fact implies no order between looks
and writes. That matters: a look sees more than the loop reads. Another task that writes there at the same time is not a
race of the program's, but its writes would be in the fact or not.

Rejected: a number that is only raised, at the launch, at its end, or at both. A task that is not ordered with the write
looks before that is carried out and asks after the number was raised, and its fact stays.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final

_NUMBERS: Final = count(1)
"""One sequence for all entries of all tables, so that a version says of which entry it is."""

_MOST: Final = 16
"""Facts about a storage: more than one loop asks for; a program of many loops asks again."""


class Contents:
    """The contents of a storage, and the facts about them."""

    __slots__ = ("facts", "version")

    def __init__(self) -> None:
        # Differs from the version of any other contents in the process.
        self.version = next(_NUMBERS)
        # By keys of those who found them out; they refer to no array.
        self.facts: dict[Any, Any] = {}

    def note(self, key: Any, fact: Any) -> None:
        """Remember a fact; forget all others where there are many."""
        if len(self.facts) >= _MOST:
            self.facts = {}
        self.facts[key] = fact
