"""The state of one encounter of a target block: the sections of its arrays, and the variables that get its results.

Theory of operation
-------------------
A number in ``map(tofrom: s)`` is a variable, not memory. As in C, the block reads it when its task runs, and the
variable receives its last value before the task is complete. So a task that depends on it finds the new value. A device
task follows others in stream order, before they are complete; a task that reads variables waits for completion instead
(`ResultRecipe`). The values of the end are kept until the task has passed, because a sum on the device is not known
earlier.

A device in another process receives a copy of the state, which has the values of the variables and no function that
stores. There the block returns its results, and the task of this process stores them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.arrays.items import SCALARS, is_device_array
from offload.constructs.target import TargetFunction
from offload.errors import ClauseError
from offload.pragma.held import Replacements
from offload.pragma.items import UNBOUND
from offload.pragma.views import SectionView, joined
from offload.runtime.current import here
from offload.runtime.recipe import DeviceRecipe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.pragma.items import MappedPart
    from offload.runtime.launch import DeviceTask
    from offload.tasks.region import Region
    from offload.tasks.task import Task


class BlockState:
    """An encounter of a block, for its body.

    Parameters
    ----------
    results : tuple of str
        The names whose last values variables receive.
    variables : tuple of functions, or None
        One stores values in the variables; one returns the variables' values.
    mapped : set of str
        The results that hold arrays, which the block must not bind to other objects.
    reads : frozenset of str
        The results that are numbers, and whose values the block reads when it begins.
    """

    def __init__(
        self,
        results: tuple[str, ...],
        variables: tuple[Callable[..., None], Callable[[], tuple[Any, ...]]] | None,
        mapped: set[str],
        reads: frozenset[str],
    ) -> None:
        self.results = results
        self._variables = variables
        self.mapped = mapped
        self.reads = reads
        self.parts: list[NotedPart] = []  # the arguments of `run`, in this order
        self._known: tuple[Any, ...] = ()  # in another process, the variables' values

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_variables": None, "_known": self.now()}

    def note(self, item: str, part: MappedPart) -> None:
        """Note that an argument is a part of another object."""
        holder, _, inner = part.path.partition("[")
        holders = part.holders[holder.count(".") :] if inner else ()  # other objects need not go to another process
        shape = tuple(getattr(part.whole, "shape", ()))
        self.parts.append(NotedPart(item, part.path, shape, part.where, part.whole if inner else None, holders))

    def now(self) -> tuple[Any, ...]:
        """Return the values of the variables."""
        return self._known if self._variables is None else self._variables[1]()

    def run(self, *arrays: Any) -> BlockRun:
        """Return what the body needs when it runs; ``arrays`` are the parts on the device."""
        return BlockRun(self, arrays)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the variables are in another process."""
        return self._variables is None

    def store(self, values: Sequence[Any]) -> None:
        """Store the last values of results in variables."""
        if self._variables is not None:
            self._variables[0](*map(number_of, values))

    def finish(self, value: Any) -> Any:
        """Store the results that a body in another process has returned; any other value is the task's."""
        if value is None or not self.results:
            return value
        self.store(value)
        return None


class NotedPart(NamedTuple):
    """An argument of a block that is a part of another object."""

    item: str
    path: str  # of the array: ``a``, ``self.x``, ``xs[…]``
    shape: tuple[int, ...]  # of the whole array
    where: tuple[int | slice, ...]  # empty for the whole array
    whole: Any  # that array, if it stands in a list or the like
    holders: tuple[Any, ...]  # this list, and other objects on the way to the array


class BlockRun:
    """A run of the body of a block: a taskgraph runs it several times for one encounter."""

    def __init__(self, state: BlockState, arrays: tuple[Any, ...]) -> None:
        self._state = state
        self._first: tuple[Any, ...] = ()  # the values with which results begin
        self._stands_for: dict[str, Any] = {}  # by item
        views: dict[Any, list[Any]] = {}
        for noted, array in zip(state.parts, arrays, strict=True):
            view = SectionView(array, noted.path, noted.shape, noted.where) if noted.where else array
            views.setdefault(id(noted.whole) if noted.holders else noted.path, []).append(view)
        self._replaced = replaced = Replacements()
        self._holders: set[str] = set()  # names of lists and the like, for which others stand in the block
        for noted in state.parts:
            if noted.holders:
                replaced.add(noted.whole, joined(views[id(noted.whole)]))
                root = noted.path.partition("[")[0]
                self._holders.add(root)
                for one in noted.holders:
                    replaced.add_holder(one, root if one is noted.holders[0] else f"{root}[…]")
        for noted in state.parts:
            holders = noted.holders
            self._stands_for[noted.item] = replaced.of(holders[0]) if holders else joined(views[noted.path])

    def part(self, item: str, value: Any = None) -> Any:
        """Return the object that a name in the block stands for: ``value`` if the item has given no array."""
        return self._stands_for.get(item, value)

    def first(self, *values: Any) -> tuple[Any, ...]:
        """Return the values with which results begin; the arguments are the values at the encounter."""
        state = self._state
        now = state.now() if state.reads else values
        self._first = tuple(
            [
                self._in_block(name, new) if name in state.reads else old
                for name, old, new in zip(state.results, values, now, strict=True)
            ]
        )
        return self._first

    def _in_block(self, name: str, value: Any) -> Any:
        """Return what the block finds in a name: a list that an earlier block has left there has device arrays, too."""
        if name not in self._holders:
            return value
        if value.__class__ in (list, dict) or isinstance(value, tuple):
            self._replaced.add_holder(value, name)
        return self._replaced.of(value)

    def leave(self, *values: Any) -> tuple[Any, ...] | None:
        """Take the values of results at the end of the body; return them in another process."""
        state = self._state
        kept = list(values)
        for at, (name, value, first) in enumerate(zip(state.results, values, self._first, strict=True)):
            if name in state.reads and value is first:
                kept[at] = UNBOUND  # the block has only read the variable
            elif name in self._holders:
                kept[at] = self._replaced.back(value)
            if name not in state.mapped:
                continue
            if value is not first:
                raise ClauseError(
                    f"map: {name} is mapped, but the block binds the name to another object, so the array would not "
                    f"change; write `{name}[...] = …`"
                )
            kept[at] = UNBOUND
        if state.is_elsewhere:
            return tuple(map(number_of, kept))
        task: Any = here().task
        if task is None or getattr(task, "place", None) is None:
            state.store(kept)
            return None

        def passed(value: Any) -> Any:  # the device has computed them
            state.store(kept)
            return value

        task.leave(passed)
        return None


def number_of(value: Any) -> Any:
    """Return the number that a device array without dimensions holds; any other value itself."""
    if value.__class__ in SCALARS or not is_device_array(value) or value.ndim:
        return value
    return value.get()[()] if hasattr(value, "get") else np.asarray(value)[()]


# -- tasks with results ----------------------------------------------------------------------------------


class ResultRecipe(DeviceRecipe):
    """The recipe of a device task whose block has a state, which is one of its arguments."""

    __slots__ = ()

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> DeviceTask:
        task = super().make(frame, sources)
        state: BlockState = next(one for one in reversed(self.args) if one.__class__ is BlockState)
        if state.reads:
            task.waits_in_stream_order = False
        task.leave(state.finish)
        return task


def _with_results(recipe: Any) -> Any:
    if recipe.__class__ is DeviceRecipe:
        recipe.__class__ = ResultRecipe
    return recipe


class ResultFunction(TargetFunction):
    """A target block with results."""

    __slots__ = ()

    def _short_recipe(self, *args: Any, **kwargs: Any) -> Any:
        return _with_results(super()._short_recipe(*args, **kwargs))

    def _named_recipe(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        recipe, depend = super()._named_recipe(*args, **kwargs)
        return _with_results(recipe), depend


class ResultTarget(ResultFunction):
    """A block of ``target`` with results."""

    __slots__ = ()
