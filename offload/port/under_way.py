"""The tasks of a form that are under way, as its host meets them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from offload.port.extents import covers, shares
from offload.port.pending import PendingAccesses

if TYPE_CHECKING:
    from offload.port.extents import AccessPart


class TasksUnderWay:
    """Tasks from their encounter until the host has waited for them; a task is named by the time of its encounter.

    A task that has ended has had its predecessors end before it. Therefore an access of a later task that covers an
    earlier access stands for it: the later task is ordered after the earlier one.
    """

    def __init__(self) -> None:
        self._pending: PendingAccesses[tuple[bool, int]] = PendingAccesses()
        self._known: set[tuple[AccessPart, bool, int]] = set()
        self._predecessors: dict[int, set[int]] = {}
        self._awaited = -1  # tasks encountered before this time have ended
        self._ended: set[int] = set()  # later tasks that have ended

    def add(self, task: int, part: AccessPart, *, writes: bool) -> None:
        """Add an access of a task."""
        if (part, writes, task) in self._known:
            return
        self._known.add((part, writes, task))
        self._predecessors.setdefault(task, set()).update(self.conflicts(part, writes=writes) - {task})
        if writes:
            self._pending.drop(part, lambda other, access: access[1] != task and covers(part, other))
        self._pending.add(part, (writes, task))

    def conflicts(self, part: AccessPart, *, writes: bool) -> set[int]:
        """Return the tasks under way with accesses that conflict with one."""
        self._pending.drop(part, partial(_has_ended, self._awaited, self._ended))
        return {
            task
            for other, (other_writes, task) in self._pending.near(part)
            if (writes or other_writes) and shares(part, other)
        }

    def end_all(self, before: int) -> None:
        """Note that all tasks that were encountered before a time have ended."""
        self._awaited = max(self._awaited, before)

    def end(self, task: int) -> None:
        """Note that a task and its predecessors have ended."""
        todo = [task]
        while todo:
            one = todo.pop()
            if one >= self._awaited and one not in self._ended:
                self._ended.add(one)
                todo.extend(self._predecessors.get(one, ()))


def _has_ended(awaited: int, ended: set[int], _: AccessPart, access: tuple[bool, int]) -> bool:
    return access[1] < awaited or access[1] in ended
