"""The event loop that runs on a thread, without importing asyncio."""

from __future__ import annotations

import sys
from typing import Any


def running_loop() -> Any:
    """Return the event loop that runs on the calling thread; None where there is none."""
    events = sys.modules.get("asyncio.events")
    look = getattr(events, "_get_running_loop", None)  # None while another thread imports it
    return None if look is None else look()


def leave_loop() -> Any:
    """Have asyncio take the calling thread for one without a loop; return the loop, for `rejoin_loop`.

    A plain body runs on a worker, or on a thread that waits; what it may do must not depend on which. So where a loop
    stands still below it, the body does not see it: it may call `asyncio.run`, and the coroutines that it starts as
    tasks run on the runtime's own loop, since they could not on the one that stands still.
    """
    loop = running_loop()
    if loop is not None:
        sys.modules["asyncio.events"]._set_running_loop(None)  # noqa: SLF001  # in its __all__
    return loop


def rejoin_loop(loop: Any) -> None:
    """Take back a `leave_loop`."""
    if loop is not None:
        sys.modules["asyncio.events"]._set_running_loop(loop)  # noqa: SLF001  # in its __all__
