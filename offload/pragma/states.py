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

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import SCALARS, is_device_array
from offload.constructs.target import TargetFunction
from offload.errors import ClauseError
from offload.pragma.items import UNBOUND
from offload.pragma.views import SectionView, SectionViews, contents, with_element
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
        self.around: dict[str, Any] = {}  # lists and the like with mapped elements, by their text
        self._parts: dict[str, tuple[str, tuple[int, ...], tuple[int | slice, ...], Any]] = {}
        self._known: tuple[Any, ...] = ()  # in another process, the variables' values
        self._arrays: dict[str, Any] = {}
        # While the body runs: the copies of `around`, with their contents, and the views of arrays with sections.
        self._copies: dict[str, tuple[Any, tuple[Any, ...]]] = {}
        self._views: dict[str, Any] = {}
        self._kept: list[Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        known = self._known if self._variables is None else self._variables[1]()
        own: dict[str, Any] = {"_kept": None, "_arrays": {}, "_views": {}, "_copies": {}}
        return {**vars(self), "_variables": None, "_known": known, **own}

    def note(self, element: str, part: MappedPart) -> None:
        """Note that an argument is a part of another object."""
        whole = part.whole if "[" in part.path else None  # else it need not go to another process
        self._parts[element] = part.path, tuple(getattr(part.whole, "shape", ())), part.where, whole

    # -- in the body ---------------------------------------------------------------------------------
    def part(self, element: str, array: Any) -> Any:
        """Return the object that a name in the block stands for; ``array`` is its section or element on the device."""
        if element == next(iter(self._parts)):  # the body begins: a taskgraph runs it several times
            self._views.clear()
            self._copies.clear()
        path, shape, where, whole = self._parts[element]
        view = SectionView(array, path, shape, where) if where else array
        holder, _, inner = path.partition("[")
        if not inner:
            known = self._views.get(path)
            if where and known is not None:
                view = known.and_also(view) if isinstance(known, SectionViews) else SectionViews(known, view)
            self._views[path] = view
            return view
        known, _ = self._copies.get(holder, (self.around[holder], ()))
        made = with_element(known, whole, view)
        self._copies[holder] = made, contents(made)
        return made

    def first(self, *values: Any) -> tuple[Any, ...]:
        """Return the values with which results begin; the arguments are the values at the encounter."""
        now: tuple[Any, ...] = ()
        if self.reads:
            now = self._known if self._variables is None else self._variables[1]()
        found = list(values)
        for at, name in enumerate(self.results):
            if name in self.mapped:
                self._arrays[name] = values[at]
            elif name in self.reads:
                found[at] = now[at]
        return tuple(found)

    def leave(self, *values: Any) -> tuple[Any, ...] | None:
        """Take the values of results at the end of the body; return them in another process."""
        self._views.clear()
        self._check_copies()
        if not self.results:
            return None
        kept = list(values)
        for at, (name, value) in enumerate(zip(self.results, values, strict=True)):
            if name not in self.mapped:
                continue
            if value is not self._arrays[name]:
                raise ClauseError(
                    f"map: {name} is mapped, but the block binds the name to another object, so the array would not "
                    f"change; write `{name}[...] = …`"
                )
            kept[at] = UNBOUND
        if self._variables is None:
            return tuple(map(number_of, kept))
        task: Any = here().task
        if task is not None and getattr(task, "place", None) is not None:
            self._kept = kept  # until the device has computed them
        else:
            self._variables[0](*map(number_of, kept))
        return None

    def _check_copies(self) -> None:
        """Raise `ClauseError` if the body has changed a list or the like, of which it has a copy."""
        for holder, (made, before) in self._copies.items():
            now = contents(made)
            if len(now) != len(before) or any(one is not other for one, other in zip(now, before, strict=True)):
                raise ClauseError(
                    f"map: an element of {holder} is mapped, so the block has a copy of {holder}, and the change of it "
                    f"would be lost; to change an array, write `{holder}[…][...] = …`"
                )
        self._copies.clear()

    # -- afterwards ----------------------------------------------------------------------------------
    def finish(self, value: Any) -> Any:
        """Store results: the device has passed the task. ``value`` is what a body in another process has returned."""
        kept, self._kept = self._kept, None
        self._arrays.clear()
        if kept is None:
            kept, value = value, None
        if kept is not None and self._variables is not None:
            self._variables[0](*map(number_of, kept))
        return value


def number_of(value: Any) -> Any:
    """Return the number that a device array without dimensions holds; any other value itself."""
    if value.__class__ in SCALARS or not is_device_array(value) or value.ndim:
        return value
    return value.get()[()] if hasattr(value, "get") else np.asarray(value)[()]


# -- tasks with results ----------------------------------------------------------------------------------


class ResultRecipe(DeviceRecipe):
    """The recipe of a device task whose block has a state, the last of its arguments."""

    __slots__ = ()

    def make(self, frame: Region, sources: Sequence[Task | None] = ()) -> DeviceTask:
        task = super().make(frame, sources)
        state: BlockState = self.args[-1]
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
