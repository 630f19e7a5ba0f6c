"""The findings of runs in order, and profiles: which iterations of a loop depended on each other."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.independence import DependenceKind


# Of the files.
_VERSION: Final = 1

ProfileVerdict = Literal["parallel", "probably parallel", "sequential"]
_VERDICTS: Final[tuple[ProfileVerdict, ...]] = ("parallel", "probably parallel", "sequential")
_KINDS: Final[tuple[DependenceKind, ...]] = ("flow", "anti", "output")
_Word = TypeVar("_Word", bound=str)
_Kind = TypeVar("_Kind")


class DependenceExample(NamedTuple):
    """Two iterations that depend on each other, the one that comes first first."""

    iterations: tuple[Any, Any]  # the values of the loop's variable; tuples of them for several loops
    element: tuple[int, ...]  # the indices
    lines: tuple[int, int]  # of both accesses


@dataclass(frozen=True, slots=True)
class ProfiledDependence:
    """One kind of dependence through one array.

    Attributes
    ----------
    array : str
        The parameter's name.
    kind : str
        ``"flow"``, ``"anti"`` or ``"output"``.
    count : int
        The number of accesses that depended on another iteration in this way.
    min_distance, max_distance : int
        The smallest and largest distance, in iterations of the sequential loop.
    example : DependenceExample
        The first such pair of iterations.
    """

    array: str
    kind: DependenceKind
    count: int
    min_distance: int
    max_distance: int  # in iterations of a serial loop, like the least
    example: DependenceExample  # the first one that was seen


@dataclass(frozen=True, slots=True)
class DependenceProfile:
    """A report of `profile_dependences`: which iterations of a loop depended on each other.

    Attributes
    ----------
    verdict : str
        ``"parallel"``: iterations are proved independent for each input. ``"probably parallel"``: no dependence was
        observed. ``"sequential"``: iterations depend on each other.
    dependences : tuple of ProfiledDependence
        The observed dependences.
    privatise : tuple of str
        Arrays that each iteration writes before it reads them; each iteration could have a copy of its own.
    reductions : tuple of str
        Arrays that the loop only updates, with one operator; use `atomic` or `reduction` for them.
    iterations, inputs : int
        The number of iterations, over all inputs, and the number of inputs.
    function, source_sha256 : str
        The name of the profiled function, and a hash of its source.
    types : tuple of mapping
        The types of the arguments in each profile, by parameter.

    Examples
    --------
    >>> def scatter(p, y):
    ...     for i in range(p.size):
    ...         y[p[i]] = y[p[i]] + 1
    >>> profile = omp.profile_dependences(scatter, (np.array([2, 0, 1, 3]), np.zeros(4)))
    >>> profile.verdict, profile.iterations, profile.dependences
    ('probably parallel', 4, ())
    """

    verdict: ProfileVerdict
    dependences: tuple[ProfiledDependence, ...]
    privatise: tuple[str, ...]  # arrays that each iteration writes before it reads them
    reductions: tuple[str, ...]  # arrays that are only updated, by one operator
    iterations: int
    inputs: int  # how many calls were profiled
    function: str
    source_sha256: str  # of the function's text, without its decorators
    types: tuple[Mapping[str, str], ...] = field(hash=False)  # mappings have none

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile to a JSON file.

        Parameters
        ----------
        path : str or path
            The file; an existing one is replaced.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> def double(x):
        ...     for i in range(x.size):
        ...         x[i] *= 2
        >>> with TemporaryDirectory() as folder:
        ...     omp.profile_dependences(double, (np.ones(4),)).save(Path(folder) / "double.json")
        ...     print(omp.DependenceProfile.load(Path(folder) / "double.json").verdict)
        parallel
        """
        import json  # here, and in `load`: `import offload` is quicker without it

        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123  # pathlib takes as long to import
            file.write(json.dumps({"version": _VERSION, **asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DependenceProfile:
        """Return the profile that a file contains.

        Parameters
        ----------
        path : str or path
            A file that `save` has written.

        Raises
        ------
        ClauseError
            The file does not contain a profile.
        OSError
            The file cannot be read.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> def double(x):
        ...     for i in range(x.size):
        ...         x[i] *= 2
        >>> profile = omp.profile_dependences(double, (np.ones(4),))
        >>> with TemporaryDirectory() as folder:
        ...     profile.save(Path(folder) / "double.json")
        ...     print(omp.DependenceProfile.load(Path(folder) / "double.json") == profile)
        True
        """
        import json

        try:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123
                facts = json.load(file)
            return _profile_of(facts)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ClauseError(
                f"{os.fspath(path)} holds no profile of dependences ({type(error).__name__}: {error}); "
                "create it again with profile_dependences, and save it"
            ) from error


def _profile_of(facts: Any) -> DependenceProfile:
    """Return the profile that a file has; raise `ValueError`, `KeyError` or `TypeError` if it has none."""
    if _number(facts["version"]) != _VERSION:
        raise ValueError(f"version {facts['version']!r:.60}")
    return DependenceProfile(
        _word(facts["verdict"], _VERDICTS),
        tuple([_dependence(one) for one in facts["dependences"]]),
        _names(facts["privatise"]),
        _names(facts["reductions"]),
        _number(facts["iterations"]),
        _number(facts["inputs"]),
        _text(facts["function"]),
        _text(facts["source_sha256"]),
        tuple([{_text(name): _text(kind) for name, kind in one.items()} for one in _list(facts["types"], dict)]),
    )


def _dependence(facts: Any) -> ProfiledDependence:
    iterations, element, lines = _list(facts["example"], list)
    first, second = iterations
    above, below = _numbers(lines)
    example = DependenceExample((_iteration(first), _iteration(second)), _numbers(element), (above, below))
    distances = _number(facts["min_distance"]), _number(facts["max_distance"])
    kind = _word(facts["kind"], _KINDS)
    return ProfiledDependence(_text(facts["array"]), kind, _number(facts["count"]), *distances, example)


def _iteration(value: Any) -> Any:
    """Return the value of a loop's variable, or a tuple of those of several loops."""
    return _numbers(value) if isinstance(value, list) else _number(value)


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(map(_number, _list(values, int)))


def _names(values: Any) -> tuple[str, ...]:
    return tuple(_list(values, str))


def _number(value: Any) -> int:
    return _of(value, int)


def _text(value: Any) -> str:
    return _of(value, str)


def _word(value: Any, words: tuple[_Word, ...]) -> _Word:
    if value not in words:
        raise ValueError(f"{value!r:.60} is not one of {', '.join(words)}")
    return value  # type: ignore[no-any-return]  # one of the words


def _list(values: Any, kind: type[_Kind]) -> list[_Kind]:
    return [_of(value, kind) for value in _of(values, list)]


def _of(value: Any, kind: type[_Kind]) -> _Kind:
    if type(value) is not kind:
        raise TypeError(f"{value!r:.60} is not of type {kind.__name__}")
    return value


# -- the findings of one run in order -----------------------------------------------------------------


# An iteration, by its trips.
Trip: TypeAlias = "tuple[int, ...]"


class Example(NamedTuple):
    """Two iterations that depend on each other, the one that comes first first."""

    trips: tuple[Trip, Trip]  # of the axes
    accesses: tuple[int, int]  # by `at`
    element: tuple[int, ...]  # its indices, as the later access has them; none is negative


@dataclass(frozen=True, slots=True)
class Observed:
    """The events of one kind of dependence, by one array, in a run."""

    array: str
    kind: DependenceKind  # flow, anti or output
    count: int  # accesses that depend on another iteration so
    # Between the two iterations, as a serial loop counts them.
    min_distance: int
    max_distance: int  # in iterations, like the least
    example: Example  # the first


class Findings(NamedTuple):
    """The findings of a run of a nest."""

    found: dict[tuple[str, DependenceKind], Observed]  # by array and kind
    exposed: frozenset[str]  # arrays of which an iteration reads an element that it has not written before
    results: dict[str, Any]  # the scalars that come out
    failure: Exception | None  # what the run, as far as it came, has found wrong
    n_trips: int  # of the outermost loop, so many were carried out; 0 where it was part of one
    n_iterations: int  # so many were
    is_whole: bool  # the run came to the end of the serial program, by its last iteration or by what that raises
