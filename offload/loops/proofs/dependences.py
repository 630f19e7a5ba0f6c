"""What profiles of a loop say: which iterations depended on each other, for the inputs that it was profiled on."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.proofs.independence import DependenceKind

_VERSION: Final = 1
"""Of the files."""

ProfileVerdict = Literal["parallel", "probably parallel", "sequential"]
_VERDICTS: Final = ("parallel", "probably parallel", "sequential")


class DependenceExample(NamedTuple):
    """Two iterations that depend on each other, the one that comes first first.

    Attributes
    ----------
    iterations : tuple of two
        The values of the loop's variable; tuples of them for several loops.
    element : tuple of int
        The indices.
    lines : tuple of int
        Of both accesses.
    """

    iterations: tuple[Any, Any]
    element: tuple[int, ...]
    lines: tuple[int, int]


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
        except (ValueError, KeyError, TypeError) as error:
            raise ClauseError(
                f"{os_name(path)} holds no profile of dependences ({type(error).__name__}: {error}); make it again with"
                " profile_dependences, and save that"
            ) from error


def os_name(path: str | os.PathLike[str]) -> str:
    """Return a path for a message."""
    return os.fspath(path)


def _profile_of(facts: Any) -> DependenceProfile:
    """Return the profile of what a file says; raise `ValueError`, `KeyError` or `TypeError` where it says none."""
    if facts["version"] != _VERSION:
        raise ValueError(f"version {facts['version']!r}")
    if facts["verdict"] not in _VERDICTS:
        raise ValueError(f"verdict {facts['verdict']!r}")
    dependences = [
        ProfiledDependence(
            str(one["array"]),
            one["kind"],
            int(one["count"]),
            int(one["min_distance"]),
            int(one["max_distance"]),
            DependenceExample(*(_tupled(part) for part in _example(one["example"]))),
        )
        for one in facts["dependences"]
    ]
    return DependenceProfile(
        facts["verdict"],
        tuple(dependences),
        _tupled(facts["privatise"]),
        _tupled(facts["reductions"]),
        int(facts["iterations"]),
        int(facts["inputs"]),
        str(facts["function"]),
        str(facts["source_sha256"]),
        tuple([dict(one) for one in facts["types"]]),
    )


def _example(parts: Any) -> tuple[Any, Any, Any]:
    iterations, element, lines = parts
    return iterations, element, lines


def _tupled(value: Any) -> Any:
    """Return lists as the tuples that they were."""
    return tuple([_tupled(one) for one in value]) if isinstance(value, list) else value
