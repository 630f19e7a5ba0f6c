"""The objects `omp` and `acc`: called with a string they are a directive, without one they decorate.

A function under `directives` contains no call of them any more when it runs. So a call that does run stands outside of
such a function, or over a ``def``. It gives a `WrittenDirective`, which decorates functions and refuses to be a block.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, overload

from offload.errors import PragmaError, UsageError
from offload.pragma.marks import SpellingMark

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.pragma.syntax import Directive

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

_SIMPLE: Final = frozenset({"taskwait", "taskyield", "barrier", "cancel taskgroup", "cancellation point taskgroup"})
"""The directives that a call carries out by itself, if they have no clauses."""


class DirectiveSpelling(SpellingMark):
    """A spelling of directives, which can be called: the objects `omp` and `acc` are such."""

    @overload
    def __call__(self, directive: str, /) -> WrittenDirective: ...
    @overload
    def __call__(self, decorated: Decorated, /) -> Decorated: ...
    def __call__(self, directive: Any, /) -> Any:
        """Take a directive, or decorate a function or a class as `directives` does.

        Parameters
        ----------
        directive : str, function or class
            A directive; or a function or a class, whose directives are rewritten.

        Returns
        -------
        WrittenDirective, function or class
            The directive, for ``@omp("…")`` over a ``def``; or the rewritten function or class.

        Raises
        ------
        PragmaError
            The string is not a directive.
        UsageError
            A directive with list items is encountered in a function that is not under `directives`.

        Notes
        -----
        OpenMP 5.2, 3.2 "Directive Format", here as strings.

        Examples
        --------
        >>> from offload.pragma import omp as pragma
        >>> @pragma("task depend(inout: x)")
        ... def double(x):
        ...     x *= 2
        >>> x = np.ones(3)
        >>> task = double(x)
        >>> pragma("taskwait")
        >>> x
        array([2., 2., 2.])
        """
        if isinstance(directive, str):
            return self._written(directive)
        if isinstance(directive, type) or callable(directive):
            from offload.pragma.rewrite import decorated

            return decorated(directive, default=self.default)
        raise PragmaError(
            f"{self._name}: a directive is a string, not {type(directive).__name__} {directive!r:.40}; write for "
            f'example {self._name}("taskwait")',
            text=repr(directive),
            end_offset=len(repr(directive)) + 1,
        )

    def _written(self, text: str) -> WrittenDirective:
        from offload.pragma.parser import parse
        from offload.pragma.tables import Form, row_of

        directive = self.read(parse(text, self.language))
        written = WrittenDirective(self, directive)
        if row_of(directive).form is Form.ALONE:
            if directive.name not in _SIMPLE or directive.clauses or directive.arguments:
                written.refuse()
            from offload.pragma.calls import DirectiveCall

            DirectiveCall(directive).run(())
            written.has_run = True
        return written

    if not TYPE_CHECKING:  # type checkers know the attributes by themselves, and refuse others

        def __getattr__(self, name: str) -> NoReturn:
            module = "offload" if self.language == "omp" else "offload.acc"
            advice = f'write {self._name}("…"), or take names of the API from the module: import {module}'
            if hasattr(import_module(module), name):
                advice = f"write {module}.{name}, after `import {module}`"
            raise AttributeError(
                f"`{self._name}` of offload.pragma is not the module: it takes directives as strings, and has no "
                f"attribute {name!r}; {advice}",
                name=name,
                obj=self,
            )

    def __reduce__(self) -> str | tuple[Any, ...]:
        return _spelling_named, (self._name,)

    def __repr__(self) -> str:
        return f"<offload.pragma.{self._name}>"


def _spelling_named(name: str) -> DirectiveSpelling:
    """Return `omp` or `acc`, for pickle."""
    from offload import pragma

    found: DirectiveSpelling = getattr(pragma, name)
    return found


class WrittenDirective:
    """A directive that a call outside of rewritten functions has met: a decorator, and nothing else."""

    def __init__(self, spelling: DirectiveSpelling, directive: Directive) -> None:
        self._spelling = spelling
        self._directive = directive
        self.has_run = False

    def __call__(self, function: Callable[..., Any]) -> Any:
        """Decorate a function as the construct's decorator does.

        Parameters
        ----------
        function : function
            The body.

        Returns
        -------
        object
            The object that the decorator of the construct makes, with ``options``.

        Raises
        ------
        PragmaError
            The directive has no function form.

        Notes
        -----
        The reference's section 1, "a function".

        Examples
        --------
        >>> from offload.pragma import omp as pragma
        >>> @pragma("target map(tofrom: x)")
        ... def double(x):
        ...     x *= 2
        >>> x = np.ones(3)
        >>> double(x)
        >>> x
        array([2., 2., 2.])
        """
        from offload.pragma.decorated import decorated
        from offload.pragma.placing import of_string

        return decorated(function, of_string(self._directive.text, self._spelling.language))

    def refuse(self) -> NoReturn:
        """Raise the error of a directive that no rewriting has taken."""
        what = f'{self._spelling.language}("{self._directive.text[:60]}")'
        raise UsageError(
            f"{what}: a directive in a block or a statement needs a function under @directives; decorate the function "
            "(from offload.pragma import directives)"
        )

    def __enter__(self) -> None:
        if not self.has_run:
            self.refuse()

    def __exit__(self, *failure: object) -> None:
        """Leave the block of a directive that has run before it."""

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *failure: object) -> None:
        """Leave the block of a directive that has run before it."""
