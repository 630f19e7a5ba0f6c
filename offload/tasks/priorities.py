"""The order of ready tasks where tasks have priorities."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offload.tasks.task import Task


class ByPriority:
    """A deque for each priority, with the methods of `collections.deque` that the engine calls.

    Every change is one step under the GIL, as it is for a deque.
    """

    __slots__ = ("_levels", "_queues")

    def __init__(self) -> None:
        self._queues: dict[int, deque[Task]] = {0: deque()}
        self._levels: tuple[deque[Task], ...] = (self._queues[0],)  # highest priority first

    def append(self, task: Task) -> None:
        queue = self._queues.get(task.priority)
        if queue is None:
            queue = self._queues.setdefault(task.priority, deque())
            while len(self._levels) < len(self._queues):  # again, if another thread has added one meanwhile
                self._levels = tuple(queue for _, queue in sorted(self._queues.copy().items(), reverse=True))
        queue.append(task)

    def extend(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self.append(task)

    def popleft(self) -> Task:
        for queue in self._levels:
            if queue:
                try:
                    return queue.popleft()
                except IndexError:
                    continue  # another thread took it
        raise IndexError("no task is ready")

    def remove(self, task: Task) -> None:
        self._queues[task.priority].remove(task)

    def rotate(self, n: int) -> None:
        for queue in self._levels:
            queue.rotate(n)

    def copy(self) -> list[Task]:
        return [task for queue in self._levels for task in queue.copy()]

    def __len__(self) -> int:
        return sum(map(len, self._levels))
