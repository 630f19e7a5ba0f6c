"""The common part of all loop constructs: the clauses about the loop, and the program of a function.

A loop function is a target function, or a task function, whose body is a `offload.loops.launch.Launcher`: it finds out
where it runs, and starts the loop there. Everything else about a call, which is dependences, deferring, devices,
mapping and failures, is that of the construct which it belongs to.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from offload.constructs.call import DirectiveFunction
from offload.loops.running.clauses import COMMON_CHECKS, LoopWords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType
    from typing import Self

    from offload.devices.base import Device
    from offload.loops.explain import LoopReport
    from offload.loops.running.clauses import SetWords
    from offload.loops.running.specialise import LoopProgram

_new: Any = object.__new__


class LoopFunction(DirectiveFunction):
    """A function whose calls are loops: the common part of all loop constructs."""

    # The clauses that speak of the loop.
    _words_of: frozenset[str] = frozenset(COMMON_CHECKS)

    __slots__ = ("_begin", "_take")

    _take: Callable[[Any], Any]
    """What the calls of a copy give their result to (`giving`); other objects have none."""

    _begin: Callable[[], Mapping[str, Any]] | None
    """What gives scalars when the calls of a copy begin (`giving`); other objects have none."""

    @property
    def _program(self) -> LoopProgram:
        """The loop under these clauses."""
        program: LoopProgram = self._clauses.program
        return program

    def _prepare(self, clauses: Any, words: dict[str, Any]) -> None:
        """Set the values of the clauses: the loop's here, the others by the construct."""
        from offload.loops.running.specialise import program_of  # what parses is imported when there is a loop to parse

        clauses.program = program_of(self._function, self._words(words), self._directive, self.__dict__)
        super()._prepare(clauses, {name: value for name, value in words.items() if name not in self._words_of})

    def _words(self, clauses: Mapping[str, Any]) -> LoopWords:
        """Return the values of the clauses of the loop."""
        return LoopWords.of(self._directive, clauses, names_of(self._function))

    def giving(self, take: Callable[[Any], Any], begin: Callable[[], Mapping[str, Any]] | None = None) -> Self:
        """Return a copy whose calls give their result to a function before the task is complete.

        The function returns the task's value. ``begin`` is called when the loop begins, after the tasks that it depends
        on, and returns scalars by name, which replace arguments of the call. A copy that `options` makes of the copy
        has neither.
        """
        made: Self = _new(type(self))
        made.__dict__ = self.__dict__
        made._clauses, made._depend, made._take, made._begin = self._clauses, self._depend, take, begin  # its own kind
        return made

    def _texts(self) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Return the globals that the text names, and the texts of the function and of those that it calls."""
        return self._program.source.texts()

    def _receive(self, texts: tuple[Any, ...]) -> None:
        """Keep the texts that came with the function, before it is parsed."""
        from offload.loops.front.source import received  # as above

        received(texts)

    @property
    def python(self) -> Callable[..., Any]:
        """The undecorated function.

        Examples
        --------
        >>> @omp.target_loop
        ... def scale(a, x):
        ...     for i in range(x.size):
        ...         x[i] = a * x[i]
        >>> x = np.ones(3)
        >>> scale.python(5.0, x)  # CPython runs it, on the host
        >>> x
        array([5., 5., 5.])
        """
        return self._function

    def compile(self, *args: Any, device: int | None = None, **kwargs: Any) -> None:
        """Compile the loop for such arguments; run nothing.

        Parameters
        ----------
        *args, **kwargs
            Arguments of a call.
        device : int, optional
            A device number; None is the device that a call would use.

        Examples
        --------
        >>> @omp.target_loop
        ... def scale(a, x):
        ...     for i in range(x.size):
        ...         x[i] = a * x[i]
        >>> scale.compile(5.0, np.ones(3))  # later calls with such types need not compile
        """
        from offload.loops.launch import compile_for

        values, spread = self._program.bound(args, kwargs), self._spread(device)
        compile_for(self._program, values, self._device_of(device))
        if spread is not None and len(spread[1]) > 1:
            from offload.loops.sets.device_runs import compile_ways  # few loops are on several devices

            compile_ways(self._program.specialise(values), values, *spread)

    def source(self, *args: Any, device: int | None = None, **kwargs: Any) -> str:
        """Return the C or CUDA source of the loop for such arguments.

        For a loop on several devices, it is the source of the next strategy.

        Parameters
        ----------
        *args, **kwargs
            Arguments of a call.
        device : int, optional
            A device number; None is the device that a call would use.

        Returns
        -------
        str
            The source.

        Examples
        --------
        >>> @omp.target_loop
        ... def scale(a, x):
        ...     for i in range(x.size):
        ...         x[i] = a * x[i]
        >>> "for (" in scale.source(5.0, np.ones(3))
        True
        """
        from offload.loops.launch import forms_for

        values, spread = self._program.bound(args, kwargs), self._spread(device)
        if spread is not None and len(spread[1]) > 1:
            from offload.loops.sets.device_runs import sources  # as above

            return "\n".join(sources(self._program.specialise(values), values, *spread))
        forms = forms_for(self._program, values, self._device_of(device))
        return "\n".join([form.source for form in forms])

    def explain(self, *args: Any, device: int | None = None, **kwargs: Any) -> LoopReport:
        """Return a report about the loop for such arguments: types, verdicts, maps, bounds.

        Parameters
        ----------
        *args, **kwargs
            Arguments of a call.
        device : int, optional
            A device number; None is the device that a call would use.

        Returns
        -------
        LoopReport
            Print it, or use its ``facts``.

        Examples
        --------
        >>> @omp.target_loop
        ... def scale(a, x):
        ...     for i in range(x.size):
        ...         x[i] = a * x[i]
        >>> report = scale.explain(5.0, np.ones(3))
        >>> report.facts["nests"][0]["verdict"]
        'parallel'
        """
        from offload.loops.explain import explained

        values = self._program.bound(args, kwargs)
        return explained(self._program, values, self._device_of(device), self._said_maps(), self._spread(device))

    def _spread(self, device: int | None) -> tuple[SetWords, Sequence[Device]] | None:
        """Return the values of clauses about several devices, and these devices; None for a loop on one."""
        return None

    def _said_maps(self) -> Mapping[str, str]:
        """Return the map type that clauses give a parameter, by name."""
        return {}

    def _device_of(self, number: int | None) -> Any:
        """Return the device of that number, or of a call; None for the host."""
        return None


@cache
def launching() -> ModuleType:
    """Return the module that starts loops, which is imported for the first call."""
    from offload.loops import launch

    return launch


def names_of(function: Callable[..., Any]) -> Iterable[str]:
    """Return the names of a function's parameters and variables."""
    code = getattr(function, "__code__", None)
    return () if code is None else (*code.co_varnames, *code.co_cellvars)
