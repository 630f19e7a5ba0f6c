"""The word to a person who waits where nothing moves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.tasks.region import AnyTask, TaskSet


def tell(what: str, what_happened: str, sets: Sequence[TaskSet], awaited: Sequence[AnyTask]) -> None:
    """Print the stories of the tasks that are waited for."""
    waits = [*awaited, *(task for tasks in sets for task in tasks.live.copy())]
    lines = [f"  {task.story()}" for task in waits if not task.finished][:20]
    sys.stderr.write("\n".join([f"offload: {what} {what_happened}. It waits for:", *lines, ""]))
