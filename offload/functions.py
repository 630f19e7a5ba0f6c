"""Task functions and target functions: what the decorators ``task`` and ``target`` make of a function."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from offload.arguments import ArgumentRules, check_defaultmap, check_sharing, has_rules
from offload.clauses import (
    Dependence,
    check_clauses,
    check_depend,
    check_device,
    check_map,
    check_name,
    check_priority,
    string_items,
    symbolic,
)
from offload.current import here
from offload.data.maptypes import Construct
from offload.defaults import Defaults
from offload.errors import ClauseError, UnsupportedError
from offload.items import VisibleNames, array_section, parse_item
from offload.launch import device_maker
from offload.regions import map_items
from offload.target_region import TargetWork, on_host
from offload.tasks.task import Site, Task, check_event

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from offload.arguments import Private
    from offload.mappers import Expansion
    from offload.runtime import Runtime
    from offload.tasks.scope import Scope
    from offload.tasks.task import Frame


class DirectiveFunction:
    """A function under a directive, with its clauses. Calling it encounters the construct."""

    _directive = ""
    _checks: Mapping[str, Callable[[Any], Any]] = {}

    def __init__(self, function: Callable[..., Any], clauses: dict[str, Any]) -> None:
        if not callable(function):
            raise ClauseError(f"{self._directive} decorates a function, not {type(function).__name__} {function!r:.60}")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise UnsupportedError(
                f"{self._directive}: {function.__name__!r} is an async def or a generator, whose call runs nothing; "
                "write a plain def"
            )
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # callable in each subclass
        self._function = function
        code = getattr(function, "__code__", None)
        self._name = getattr(function, "__name__", type(function).__name__)
        self._location = f"{code.co_filename}:{code.co_firstlineno}" if code else "a callable without source"
        self._site: Site | None = None
        self._visible: VisibleNames | None = None
        self._apply(clauses)

    def _apply(self, clauses: dict[str, Any]) -> None:
        """Take over the clauses; this is the whole cost of ``options`` in a loop."""
        self._clauses = clauses
        self._depend: tuple[Dependence, ...] = clauses.get("depend", ())
        self._label: str | None = clauses.get("name")
        self._if: Any = clauses.get("if_", True)
        is_symbolic = symbolic(self._depend) or ("map" in clauses and symbolic(clauses["map"]))
        self._names = self._visible_names() if is_symbolic or has_rules(clauses) else None

    def _visible_names(self) -> VisibleNames:
        if self._visible is None:  # what `options` makes shares it
            self._visible = VisibleNames(self._function)
        return self._visible

    def options(self, **clauses: Any) -> Self:
        """Return a copy with these clauses replaced.

        Raises
        ------
        ClauseError
            The construct has no such clause, or a value is wrong.
        """
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._apply({**self._clauses, **check_clauses(self._directive, clauses, self._checks)})  # its own copy
        return copy

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind like a function: under a method, ``self`` is the first argument."""
        return self if instance is None else functools.partial(self, instance)  # type: ignore[operator,arg-type,misc]

    def __repr__(self) -> str:
        return f"<{self._directive} function {self._name}>"

    def _site_in(self, runtime: Runtime) -> Site:
        site = self._site
        if site is None or site.runtime is not runtime:
            site = self._site = Site(self._directive, self._name, self._location, runtime)
        return site

    def _dependences(self, names: Mapping[str, Any]) -> tuple[Dependence, ...]:
        return tuple(
            dependence.resolved(names) if dependence.is_symbolic else dependence for dependence in self._depend
        )


class TaskFunction(DirectiveFunction):
    """A function whose calls are tasks on the host."""

    _directive = "task"
    _checks = {  # noqa: RUF012  # a table, never changed
        "depend": check_depend,
        "detach": check_event,
        "if_": lambda value: value,
        "priority": check_priority,
        "name": check_name,
    }

    def _apply(self, clauses: dict[str, Any]) -> None:
        super()._apply(clauses)
        self._event = clauses.get("detach")

    def __call__(self, *args: Any, **kwargs: Any) -> Task:
        """Encounter the construct: return its `Task`, which runs as soon as its dependences allow."""
        scope = here()
        runtime = scope.runtime
        site = self._site
        if site is None or site.runtime is not runtime:
            site = self._site_in(runtime)
        frame = scope._frame or scope.frame("task")  # noqa: SLF001  # the usual case, without a call
        depend = self._depend if self._names is None else self._dependences(self._names.at_call(args, kwargs))
        if frame.recorder is not None or self._event is not None or not self._if:
            return self._encounter(scope, frame, depend, args, kwargs)
        task = Task(site, self._function, args, kwargs, frame, self._label)
        engine = runtime.engine
        if engine.submit(task, depend):
            engine.make_ready(task)
        return task

    def _encounter(
        self, scope: Scope, frame: Frame, depend: tuple[Dependence, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Task:
        runtime = scope.runtime
        site = self._site_in(runtime)

        def make(frame: Frame) -> Task:
            task = Task(site, self._function, args, kwargs, frame, self._label)
            if self._event is not None:
                self._event.attach(task)
                task.event = self._event
                task.early = []
            return task

        return runtime.encounter(  # type: ignore[no-any-return]  # Scope does not know Runtime
            scope, frame, make, depend, deferred=bool(self._if)
        )


class TargetFunction(DirectiveFunction):
    """A function whose calls are target regions: its array arguments are device arrays there."""

    _directive = "target"
    _checks = {  # noqa: RUF012  # a table, never changed
        "map": check_map,
        "depend": check_depend,
        "nowait": bool,
        "device": check_device,
        "if_": lambda value: value,
        "firstprivate": check_sharing,
        "private": check_sharing,
        "is_device_ptr": check_sharing,
        "has_device_addr": check_sharing,
        "defaultmap": check_defaultmap,
        "priority": check_priority,
        "name": check_name,
    }

    def __init__(self, function: Callable[..., Any], clauses: dict[str, Any]) -> None:
        super().__init__(function, clauses)
        self._defaults = Defaults.of(function)

    def _apply(self, clauses: dict[str, Any]) -> None:
        super()._apply(clauses)
        names = self._names
        self._rules = ArgumentRules(clauses, names) if names is not None and has_rules(clauses) else None
        if names is not None:
            for item in string_items(clauses.get("map", ())):
                if not names.may_have(parse_item(item).name):
                    raise ClauseError(
                        f"map: list item {item!r} names no parameter and no visible name; {self._name} takes "
                        f"{', '.join(names.parameters) or 'no parameters'}"
                    )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Encounter the construct: return what the body returns, or with ``nowait`` the `Task`."""
        if self._defaults is not None:
            args, kwargs = self._defaults.completed(args, kwargs)
        scope = here()
        runtime = scope.runtime
        frame = scope.frame("target")
        clauses = self._clauses
        deferred = bool(clauses.get("nowait"))
        place = runtime.place(frame, clauses.get("device"), if_=bool(self._if))
        names = self._names.at_call(args, kwargs) if self._names is not None else {}
        depend = self._dependences(names) if self._names is not None else self._depend
        site = self._site_in(runtime)
        objects: dict[int, Expansion] = {}
        privates: dict[int | str, Private] = {}
        items = map_items(Construct.TARGET, clauses.get("map", ()), names, objects)
        sections = self._sections(names, args, kwargs)
        if self._rules is not None:
            decided = self._rules.decide(args, kwargs, names, items, objects, on_host=place is None)
            privates = decided.privates
            sections.update(decided.sections)
            items += decided.items
            objects.update(decided.objects)
        make: Callable[[Frame], Task]
        if place is None:

            def make(frame: Frame) -> Task:
                replaced, named = on_host(args, kwargs, sections, objects, privates)
                return Task(site, self._function, replaced, named, frame, self._label)
        else:
            work = TargetWork(self._function, args, kwargs, items, sections, place, objects, privates)
            make = device_maker(site, self._label, place, work)

        task = runtime.encounter(scope, frame, make, depend, deferred=deferred)
        if deferred:
            return task
        return task.value

    def _sections(
        self, names: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[int | str, Any]:
        """Return the arguments of which a string names a section: the body receives the array of that section.

        Raises
        ------
        ClauseError
            Strings name two sections of one argument, and none names all of it: the body can receive one array only.
        """
        if self._names is None:
            return {}
        found: dict[int | str, Any] = {}
        texts: dict[int | str, list[str]] = {}
        whole: set[int | str] = set()
        for item in string_items(self._clauses.get("map", ())):
            parsed = parse_item(item)
            slot = self._names.slot(parsed.name, kwargs)
            if not (slot in kwargs if isinstance(slot, str) else slot < len(args)):
                continue  # a visible name, or a parameter that has its default
            if not parsed.dims:
                whole.add(slot)
                continue
            part = parsed.resolve(names)
            if slot not in found:
                found[slot] = part
                texts[slot] = [item]
            elif array_section(part) != array_section(found[slot]):
                texts[slot].append(item)
        for slot in whole:
            found.pop(slot, None)
        for slot in found:
            if len(texts[slot]) > 1:
                raise ClauseError(
                    f"map: {' and '.join(map(repr, texts[slot]))} are different sections of one argument, and the body "
                    "receives one array; name one section, or all of the array as well"
                )
        return found


def _decorator(kind: type[DirectiveFunction], function: Callable[..., Any] | None, clauses: Mapping[str, Any]) -> Any:
    checked = check_clauses(kind._directive, clauses, kind._checks)  # noqa: SLF001  # same module
    if function is None:
        return lambda function: kind(function, checked)
    return kind(function, checked)


def task(function: Callable[..., Any] | None = None, /, **clauses: Any) -> Any:
    """Make a function a task function: each call generates a task that runs the body on the host.

    Parameters
    ----------
    depend : list of dependences
        `in_`, `out`, `inout` of list items; the task runs after the earlier siblings that they name.
    detach : Event
        The task is complete when its body has finished and the event is fulfilled.
    if_ : bool
        False: undeferred, the call returns when the body has run; dependences hold all the same.
    priority : int
        At least 0; a hint.
    name : str
        A label for graphs, traces and errors.

    Returns
    -------
    TaskFunction
        Calling it returns a `Task`; ``.options(…)`` returns a copy with clauses replaced.

    Raises
    ------
    ClauseError, DependError, EventError
        A clause that the construct does not have, or a wrong value.

    Notes
    -----
    *Blocks* only with ``if_=False``. OpenMP 5.2, 12.5 "task Construct".
    """
    return _decorator(TaskFunction, function, clauses)


def target(function: Callable[..., Any] | None = None, /, **clauses: Any) -> Any:
    """Make a function a target function: each call runs the body with its array arguments on a device.

    Parameters
    ----------
    map : list of map clauses
        `to`, `from_`, `tofrom`, `alloc` of list items; a bare array is ``tofrom``. Arrays in no clause, and objects
        whose class has a mapper, are ``tofrom`` as well, or ``to`` where they are read-only.
    firstprivate, private : list of str and arrays
        Arguments with device storage of their own, with the contents that they have at the call, or uninitialised;
        never copied back, released when the task is complete, no mappings.
    is_device_ptr, has_device_addr : list of str and arrays
        Arguments that have to be device arrays of the device; they pass through, as every device array does.
    defaultmap : str or dict
        What happens to arguments in no clause, for all or by category ("aggregate": arrays, "scalar", "pointer": device
        arrays): ``"alloc"``, ``"to"``, ``"from"``, ``"tofrom"``, ``"firstprivate"``, ``"present"``, ``"default"``; with
        ``"none"`` they have to be in one. Scalars are captured by value and device arrays pass in any case.
    depend : list of dependences
        The region runs after the earlier siblings that they name.
    nowait : bool
        True: deferred, the call returns its `Task`.
    device : int
        A device number; None is the default device.
    if_ : bool
        False: the region runs with the host as its device.
    priority, name
        As for `task`.

    Returns
    -------
    TargetFunction
        Calling it returns what the body returns, or a `Task`; ``.options(…)`` as for `task`.

    Raises
    ------
    ClauseError, DependError, MapError
        At the call or before: wrong clauses, types, names or device numbers. In the task: presence, overlap, memory.

    Notes
    -----
    *Blocks* without ``nowait`` until copies back are done. *Costs* a copy of each item to the device if it is not
    present, and back. OpenMP 5.2, 13.8 "target Construct"; deviations: items may be non-contiguous, a body that
    fails copies nothing back.
    """
    return _decorator(TargetFunction, function, clauses)
