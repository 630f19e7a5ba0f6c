"""The flow of values between a function and its blocks: which variables live on, by `liveness`.

It is computed before any directive is replaced, and only for functions where a name is in question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from offload.pragma.blocks import names_in_string
from offload.pragma.liveness import NONE, BlockFlow, Liveness
from offload.pragma.tables import Form

if TYPE_CHECKING:
    from offload.pragma.blocks import Found, FoundDirectives
    from offload.pragma.liveness import Names

_PRIVATE: Final = ("private", "firstprivate")
_RECEIVED: Final = ("lastprivate", "copyout")


class FunctionFlow:
    """The variables that are live at the blocks of a function."""

    def __init__(self, finding: FoundDirectives) -> None:
        self._finding = finding
        self._blocks: dict[int, BlockFlow] = {}
        self._begins: dict[int, Names] = {}
        self._after: dict[int, Names] | None = None

    def _flows(self) -> dict[int, BlockFlow]:
        if not self._blocks:
            self._blocks = {id(found.node): _flow_of(found) for found in self._finding.directives}
        return self._blocks

    def before(self, found: Found) -> Names:
        """Return the names that a block may read before it assigns them."""
        known = self._begins.get(id(found))
        if known is None:
            known = self._begins[id(found)] = Liveness(self._flows()).block(found.node.body, NONE)
        return known

    def after(self, found: Found) -> Names:
        """Return the names that the function may read after a directive, before it assigns them."""
        if self._after is None:
            liveness = Liveness(self._flows())
            liveness.block(self._finding.definition.body, NONE)
            self._after = liveness.after
        return self._after.get(id(found.node), NONE)


def _flow_of(found: Found) -> BlockFlow:
    reads, binds = names_in_string(found)
    unread = set(found.names_of(*_RECEIVED))
    unread |= {item.name for clause in found.clauses("map") if clause.kind == "from" for item in clause.items}
    own = frozenset(found.names_of(*_PRIVATE))
    if found.kind_of("default") in _PRIVATE and found.inner is not None:
        own |= found.inner.uses.keys()
    taken = frozenset(reads) - unread
    if found.form is Form.NEST:
        return BlockFlow(taken, own=own | unread | frozenset(found.names_of("reduction")), is_nest=True)
    is_taken = found.form in (Form.TAKEN, Form.LOOP, Form.SECTION)
    return BlockFlow(taken, frozenset(binds), own, is_sure=not is_taken, kept=frozenset(reads) - own)


def is_mentioned(found: Found, name: str) -> bool:
    """Tell whether a clause of a directive has a name as a list item."""
    clauses: Any = found.directive.clauses
    return any(item.name == name for clause in clauses for item in clause.items)
