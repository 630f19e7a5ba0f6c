"""The word to a person who waits where nothing moves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload.tasks.goals import Goal


def tell(goal: Goal, what_happened: str) -> None:
    """Print the stories of the tasks that are waited for."""
    waits = [*goal.tasks, *(task for members in goal.sets for task in members.live.copy())]
    lines = [f"  {task.story()}" for task in waits if not task.finished][:20]
    sys.stderr.write("\n".join([f"offload: {goal} {what_happened}. It waits for:", *lines, ""]))
