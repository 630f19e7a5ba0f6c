"""Programs whose loops run as Python, since compiling takes seconds."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from offload.loops.running import looks, plan, runs, scan_runs
from offload.loops.running.build import Builder
from offload.loops.speculative import competitor, race

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def uncompiled() -> Iterator[None]:
    """Have loops find no compiler; the process keeps the one that it has found, or finds later."""
    none = Builder({"OFFLOAD_CC": "none"})
    with pytest.MonkeyPatch.context() as patch:
        for module in (looks, plan, runs, scan_runs, competitor, race):
            patch.setattr(module, "builder", none)
        yield
