"""What profiles of a loop say: which iterations depended on each other, for the inputs that it was profiled on."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

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
    """One kind of dependence by one array.

    Attributes
    ----------
    array : str
    kind : str
        ``"flow"``, ``"anti"`` or ``"output"``.
    count : int
        Accesses that depended on another iteration so.
    min_distance, max_distance : int
        In iterations of a serial loop.
    example : DependenceExample
        The first.
    """

    array: str
    kind: DependenceKind
    count: int
    min_distance: int
    max_distance: int
    example: DependenceExample


@dataclass(frozen=True, slots=True)
class DependenceProfile:
    """What `profile_dependences` has seen of a loop.

    Attributes
    ----------
    verdict : str
        ``"parallel"``: proved, for each input; ``"probably parallel"``: no dependence was seen; ``"sequential"``.
    dependences : tuple of ProfiledDependence
    privatise : tuple of str
        Arrays whose elements each iteration writes before it reads them, so that each could have its own.
    reductions : tuple of str
        Arrays that are only updated, by one operator, so that `atomic` or `reduction` is for them.
    iterations, inputs : int
        How many there were, of all inputs together.
    function, source_sha256 : str
        Whose profile it is.
    types : tuple of mapping
        The types of arguments that it was profiled with, by parameter.
    """

    verdict: ProfileVerdict
    dependences: tuple[ProfiledDependence, ...]
    privatise: tuple[str, ...]
    reductions: tuple[str, ...]
    iterations: int
    inputs: int
    function: str
    source_sha256: str
    types: tuple[Mapping[str, str], ...] = field(hash=False)  # mappings have none

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the profile to a file, as JSON."""
        import json  # here, and in `load`: `import offload` is quicker without it

        with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123  # pathlib takes as long to import
            file.write(json.dumps({"version": _VERSION, **asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> DependenceProfile:
        """Return the profile of a file.

        Raises
        ------
        ClauseError
            The file holds no profile.
        OSError
            It cannot be read.
        """
        import json

        try:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123
                facts = json.load(file)
            return _profile_of(facts)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ClauseError(
                f"{os_name(path)} contains no profile of dependences ({type(error).__name__}: {error}); create it "
                "again with profile_dependences, and save it"
            ) from error


def os_name(path: str | os.PathLike[str]) -> str:
    """Return a path for a message."""
    return os.fspath(path)


def _profile_of(facts: Any) -> DependenceProfile:
    """Return the profile of what a file says; raise `ValueError`, `KeyError` or `TypeError` where it says none."""
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
