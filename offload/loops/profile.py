"""`profile_dependences`: which iterations of a loop depend on each other, for certain inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.errors import LoopError
from offload.loops.common import LoopFunction
from offload.texts import PLAIN_TEXT

if TYPE_CHECKING:
    from offload.loops.front.source import FunctionSource
    from offload.loops.proofs.dependences import DependenceProfile
    from offload.loops.speculative.candidate_report import CandidateReport


def profile_dependences(fn: Any, *inputs: Any) -> DependenceProfile | CandidateReport:
    """Run a loop sequentially, on copies of each input, and return which of its iterations depend on each other.

    For a plain function with several loops, and for a loop with a scalar that passes between iterations, return a
    verdict for each ``for``.

    Parameters
    ----------
    fn : callable
        A loop function, or a plain function of the same form. Its clauses count: private, reduced and atomic arrays
        cause no dependences. Or any plain function with several loops (loops one after the other, or in a ``while``),
        or with statements next to its loop that a loop function cannot have. Or a function under `directives`, which
        counts without its directives.
    *inputs : tuple or dict
        The arguments of one call each, by position or by name, with host arrays. Their contents do not change.

    Returns
    -------
    DependenceProfile
        The profile. Save it with ``.save(path)``, or pass it to ``target_loop(speculate=profile)``.
    CandidateReport
        Of a plain function with several loops. Print it, or use ``.loops``: each has ``.line``, ``.variable``,
        ``.verdict``, ``.why``, the clauses that it needs, and ``.write``, the line to write above it.

    Raises
    ------
    UsageError
        There is no input, or an input is neither a tuple nor a dictionary.
    UnsupportedError
        A loop function has several nests.
    LoopError
        The function, or its arguments, are outside of the subset.
    IndexError, ZeroDivisionError, ValueError
        The sequential run raises it.

    Notes
    -----
    The call blocks for the runs. They are compiled, and take up to ten times as long as the sequential loop on one
    core. They take less time if the indices depend only on values that the loop does not compute. Each watched element
    needs 4 to 32 bytes. The profile watches only accesses that are not proved independent. CPython runs a function with
    several loops, at some microseconds for each access of an element: take small inputs. OpenMP has no such routine.

    Examples
    --------
    >>> def scatter(p, y):
    ...     for i in range(p.size):
    ...         y[p[i]] = y[p[i]] + 1
    >>> omp.profile_dependences(scatter, (np.array([2, 0, 1]), np.zeros(3))).verdict
    'probably parallel'
    >>> omp.profile_dependences(scatter, (np.array([2, 0, 2]), np.zeros(3))).verdict
    'sequential'
    """
    from offload.loops.front.outlines import has_several  # what parses is imported when there is a loop
    from offload.loops.front.source import FunctionSource
    from offload.loops.speculative.profiles import profile_inputs

    if isinstance(fn, LoopFunction):
        return profile_inputs(fn._program, inputs)  # noqa: SLF001  # its program
    source = FunctionSource.of(fn)
    if not has_several(source.definition) and not hasattr(fn, PLAIN_TEXT):
        try:
            return profile_inputs(fn, inputs)
        except LoopError as error:
            if error.rule != "carried" and not _is_around_loops(error, source):
                raise
    from offload.loops.speculative.candidates import candidates  # few programs ask for it

    return candidates(fn, inputs)


def _is_around_loops(error: LoopError, source: FunctionSource) -> bool:
    """Tell whether an error is about a statement next to the loops, which only a loop function must not have."""
    from offload.loops.front.outlines import sites_of

    body = source.definition.body
    lines = range(body[0].lineno, (body[-1].end_lineno or 0) + 1)
    loops = [range(site.node.lineno, (site.node.end_lineno or 0) + 1) for site in sites_of(source.definition)]
    if not loops or error.file != source.place.file or error.line not in lines or error.rule == "argument":
        return False
    return not any(error.line in loop for loop in loops)
