"""The place in the program of a construct that is a call, not a decorated function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.interrupts.frames import caller
from offload.tasks.site import Site

if TYPE_CHECKING:
    from offload.runtime.runtime import Runtime


def call_site(directive: str, runtime: Runtime, n_between: int = 0) -> Site:
    """Return the construct that the program encounters: where it has called the library.

    ``n_between`` is how many frames around the caller's are known to be the library's: one less to be asked each.
    """
    frame = caller(2 + n_between)  # whoever calls this is the library
    return Site(directive, directive, (frame.f_code, frame.f_lasti), runtime)
