"""`profile_dependences`: which iterations of a loop depend on each other, for certain inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.loops.common import LoopFunction

if TYPE_CHECKING:
    from offload.loops.proofs.dependences import DependenceProfile


def profile_dependences(fn: Any, *inputs: Any) -> DependenceProfile:
    """Run a loop in order, on copies of each input, and return which of its iterations depend on each other.

    Parameters
    ----------
    fn : callable
        A loop function, or a plain function that could be one. Its clauses count: what is private, reduced or atomic
        is no dependence.
    *inputs : tuple or dict
        The arguments of one call each, by position or by name, with arrays of the host, which keep what they hold.

    Returns
    -------
    DependenceProfile
        With ``.save(path)``; ``target_loop(speculate=profile)`` takes it.

    Raises
    ------
    UsageError
        There is no input, or one is neither a tuple nor a dictionary.
    UnsupportedError
        The loop has several nests.
    LoopError
        What is wrong with the function, or with arguments of such types.
    IndexError, ZeroDivisionError, ValueError
        As the serial run raises it.

    Notes
    -----
    *Blocks* for the runs: compiled, up to ten times as long as the loop takes in order on one core, less where
    addresses follow from nothing that it computes; 4 to 32 bytes for each element of an array that is watched. Only
    accesses count that are not proved independent. No OpenMP.
    """
    from offload.loops.speculative.profiles import profile_inputs  # what parses is imported when there is a loop

    return profile_inputs(fn._program if isinstance(fn, LoopFunction) else fn, inputs)  # noqa: SLF001  # its program
