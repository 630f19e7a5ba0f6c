"""The report of `profile_dependences` about a plain function: a verdict for each of its loops."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from offload.loops.proofs.dependences import ProfiledDependence

CandidateVerdict: TypeAlias = Literal[
    "parallel", "probably parallel", "reduction", "sequential", "outside the subset", "not run"
]


@dataclass(frozen=True, slots=True)
class LoopCandidate:
    """The verdict about one ``for``.

    Attributes
    ----------
    line, variable : int, str
        The line of the ``for``, and its variable.
    depth : int
        The number of ``for`` around it.
    verdict : str
        ``"parallel"``: iterations are proved independent for each input. ``"probably parallel"``: no dependence was
        observed. ``"reduction"``: the same, apart from the variables of ``reductions`` and ``atomic``.
        ``"sequential"``: iterations depend on each other. ``"outside the subset"``: loop functions do not accept the
        text. ``"not run"``: no input has reached the loop.
    why : str
        The reason.
    reductions : tuple of (str, str)
        Operators and scalars.
    atomic, private : tuple of str
        Arrays that the loop only updates; arrays of which each iteration needs its own copy, and nobody the contents
        after the loop.
    lastprivate : tuple of str
        Scalars and arrays of which each iteration needs its own copy, and whose last value is used after the loop.
    dependences : tuple of ProfiledDependence
        The observed dependences.
    entries, iterations : int
        How often the loop has begun, and its iterations, over all inputs.
    write : str
        The line to write above the loop, or in its place; empty for a loop that runs in order.
    """

    line: int
    variable: str
    depth: int
    verdict: CandidateVerdict
    why: str
    reductions: tuple[tuple[str, str], ...]
    atomic: tuple[str, ...]
    private: tuple[str, ...]
    lastprivate: tuple[str, ...]
    dependences: tuple[ProfiledDependence, ...]
    entries: int
    iterations: int
    write: str

    @property
    def is_parallel(self) -> bool:
        """Whether iterations may run in parallel, as far as is known, with the clauses that the report proposes."""
        return self.verdict in ("parallel", "probably parallel", "reduction")


@dataclass(frozen=True, slots=True)
class CandidateReport:
    """A report of `profile_dependences` about a plain function with several loops. Print it.

    Attributes
    ----------
    function, file, line : str, str, int
        The function, and where it is defined.
    inputs : int
        The number of inputs.
    loops : tuple of LoopCandidate
        The verdict about each ``for``, in the order of the text.

    Examples
    --------
    >>> def sums(a, y, total):
    ...     for i in range(a.shape[0]):
    ...         s = 0.0
    ...         for k in range(a.shape[1]):
    ...             s += a[i, k]
    ...         y[i] = s
    ...     for i in range(1, y.size):
    ...         y[i] = y[i] + y[i - 1]
    >>> report = omp.profile_dependences(sums, (np.ones((3, 4)), np.zeros(3), 0))
    >>> [loop.verdict for loop in report.loops]
    ['parallel', 'reduction', 'sequential']
    """

    function: str
    file: str
    line: int
    inputs: int
    loops: tuple[LoopCandidate, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dictionaries, lists, strings and numbers."""
        return asdict(self)

    def __rich__(self) -> str:
        return str(self).replace("[", r"\[")  # what Rich would take for its markup

    def __str__(self) -> str:
        runs = "1 input" if self.inputs == 1 else f"{self.inputs} inputs"
        lines = [f"{self.function} ({self.file}:{self.line}), {runs}"]
        for loop in self.loops:
            indent = "  " * (loop.depth + 1)
            lines.append(f"{indent}{loop.line}, for {loop.variable}: {_WORDS[loop.verdict]}; {loop.why}")
            if loop.write:
                lines.append(f"{indent}    {loop.write}")
        return "\n".join(lines)


_WORDS: dict[str, str] = {
    "parallel": "parallel",
    "probably parallel": "probably parallel",
    "reduction": "parallel with a reduction",
    "sequential": "in order",
    "outside the subset": "not in the subset",
    "not run": "not run",
}
