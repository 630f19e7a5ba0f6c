"""Where in the program a construct stands that is a call, not a decorated function."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from offload.tasks.region import Site

if TYPE_CHECKING:
    from offload.runtime import Runtime

_FRONT = frozenset(
    {
        "contextlib",
        "offload.acc.addresses",
        "offload.acc.compute",
        "offload.acc.data",
        "offload.acc.declaring",
        "offload.acc.memory",
        "offload.acc.operations",
        "offload.acc.routines",
        "offload.acc.waiting",
        "offload.awaiting",
        "offload.copying",
        "offload.current",
        "offload.directives",
        "offload.interop",
        "offload.memory",
        "offload.queueing",
        "offload.synchronization",
        "offload.target",
        "offload.taskgraph",
        "offload.taskloop",
        "offload.update",
    }
)


def call_site(directive: str, runtime: Runtime) -> Site:
    """Return the construct that a user's line encounters: the nearest caller outside of the front modules."""
    caller = sys._getframe(1)  # noqa: SLF001  # what `inspect` and `logging` use
    while caller.f_globals.get("__name__") in _FRONT and caller.f_back is not None:
        caller = caller.f_back
    return Site(directive, directive, (caller.f_code, caller.f_lasti), runtime)
