"""The words of logs, and how long they are kept.

The words of a present storage hang on its entry (`Entry.beside`), so the next loop finds them, and they end with it. A
run takes them away, and gives them back when its stream has passed; a concurrent run makes its own. An array in no
entry gets words for one run. A run's base is the greatest of its storages' bases, so all words are at most that. If ids
would exceed 2**32 - 1, the words are cleared and begin at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.loops.running.looks import entry_at
from offload.loops.watched.exchange_log import MOST_IDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.data.entries import Entry
    from offload.loops.watched.exchange_log import Logged
    from offload.runtime.launch import DeviceTask

_WORD: Final = np.dtype(np.uint32)
_KEY: Final = "log"

# Words of one size that are kept beside a storage: of so many parts of it, or of loops that run at a time.
_MOST: Final = 4


@dataclass(slots=True)
class Words:
    """The words of a storage."""

    # Device arrays, a word for each cell; None until one is asked for.
    writers: Any = None
    readers: Any = None  # None where reads are not logged
    base: int = 0  # what no word exceeds


class Log:
    """The words of one run, of all storages that it logs.

    Words are cleared on the stream of ``task``. Without memory it raises `DeviceMemoryError`, and takes no words.
    """

    def __init__(self, of: Logged, arrays: Mapping[str, Any], n_iterations: int, task: DeviceTask) -> None:
        self._of, self._task = of, task
        self._entries: dict[str, Entry | None] = {}  # in which the storages lie; None: in none
        self._words: dict[str, Words] = {}  # by storage
        try:
            for storage, n_cells in of.n_cells.items():
                self._take(storage, n_cells, arrays[storage])
        except BaseException:
            self.give_back()
            raise
        # As `offload.loops.watched.exchange_log` has them.
        self.base = max((words.base for words in self._words.values()), default=0)
        if self.base + 1 + n_iterations > MOST_IDS:
            self.base = 0
            for words in self._words.values():
                for array in (words.writers, words.readers):
                    if array is not None:
                        self._clear(array)
        self.many = self.base + 1 + n_iterations  # stands for several readers

    def arrays(self) -> dict[str, Any]:
        """Return the words by the names that the nest has for them."""
        found = {name: self._words[storage].writers for storage, name in self._of.writers.items()}
        return found | {name: self._words[storage].readers for storage, name in self._of.readers.items()}

    def close(self) -> None:
        """Take note that the stream has passed the run: its ids are old from now on."""
        for words in self._words.values():
            words.base = self.many
        self.give_back()

    def give_back(self) -> None:
        """Leave the words beside their storages, as they are, unless there are enough."""
        for storage, words in self._words.items():
            entry = self._entries[storage]
            if entry is not None:
                with self._task.place.lock:
                    if entry.beside is None:
                        entry.beside = {}
                    kept = entry.beside.setdefault((_KEY, self._of.n_cells[storage]), [])
                    if len(kept) < _MOST:
                        kept.append(words)
        self._words.clear()

    def _take(self, storage: str, n_cells: int, array: Any) -> None:
        plan = self._task.plan
        entry = None if plan is None else entry_at(self._task, array, plan.counted)
        self._entries[storage] = entry
        words = Words()
        if entry is not None:
            with self._task.place.lock:
                if entry.beside and (kept := entry.beside.get((_KEY, n_cells))):
                    words = kept.pop()
        self._words[storage] = words
        for field, is_wanted in (("writers", True), ("readers", storage in self._of.readers)):
            if is_wanted and getattr(words, field) is None:
                setattr(words, field, self._made(n_cells))

    def _made(self, n_cells: int) -> Any:
        """Return words that are 0."""
        stream: Any = self._task.lane.stream  # type: ignore[union-attr]  # the body has one
        made = self._task.place.device.alloc((max(n_cells, 1),), _WORD, stream)
        self._clear(made)
        return made

    def _clear(self, words: Any) -> None:
        device: Any = self._task.place.device
        stream: Any = self._task.lane.stream  # type: ignore[union-attr]  # as above
        nbytes = words.shape[0] * _WORD.itemsize
        device.fill(device.view(words, 0, (nbytes,), (1,), np.dtype(np.uint8)), 0, stream)
