"""Functions that are made for calls of one name, as text: without loops, as each of their steps costs a launch time.

A call that has been made before differs from the one before in addresses and floats alone (`offload.loops.ready`). What
is left to do for it is a dozen of steps of 50 ns, and the loops around them would cost as much again. So the steps are
written one after the other, for the positions and numbers of the call, which are all that the text has in it. With five
arguments: 1 us less of the 5 us that Python takes for a launch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.items import SCALARS
from offload.loops.tree.naming import FLOATS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def matcher(args: Sequence[Any]) -> Callable[[Sequence[Any]], bool]:
    """Return what tells that a call has the name of this one, for most that have; ``args`` are as many there.

    Arrays are told by their dtype's identity, so that those of an equal one are not found.
    """
    known: dict[str, Any] = {}
    parts = []
    for k, value in enumerate(args):
        known[f"k{k}"] = kind = value.__class__
        parts.append(f"a{k}.__class__ is k{k}")
        if kind in FLOATS:
            continue
        if kind in SCALARS:
            known[f"v{k}"] = value
            parts.append(f"a{k} == v{k}")
        else:
            known |= {f"d{k}": value.dtype, f"n{k}": value.shape, f"s{k}": value.strides}
            parts.append(f"a{k}.dtype is d{k} and a{k}.shape == n{k} and a{k}.strides == s{k}")
    return _made("matches", "args", [*_arguments(len(args)), f"return {' and '.join(parts) or 'True'}"], known)


def filler(
    n_arguments: int,
    arrays: Sequence[tuple[int, int]],
    pairs: Sequence[tuple[int, int, int, int, int, int]],
    pointers: Sequence[tuple[int, int]],
    floats: Sequence[tuple[int, int, Any]],
    looked_at: Sequence[int],
) -> Callable[..., Any]:
    """Return ``fill(args, address, holds, structure)``, which returns the filled structure, or None of other calls.

    Parameters
    ----------
    n_arguments : int
    arrays : sequence of (int, int)
        Positions, and the bytes of which addresses have to be multiples.
    pairs : sequence of (int, int, int, int, int, int)
        Arrays, by their numbers among those, that must not share memory, and where their first and last bytes lie.
    pointers : sequence of (int, int)
        Slots, and the numbers of the arrays.
    floats : sequence of (int, int, callable)
        Where in the structure, the position, and what packs it.
    looked_at : sequence of int
        Numbers of arrays of whose addresses ``holds`` is asked.
    """
    known: dict[str, Any] = {f"pack{k}": pack_into for k, (_, _, pack_into) in enumerate(floats)}
    lines = _arguments(n_arguments)
    for number, (position, nbytes) in enumerate(arrays):
        lines += [
            f"p{number} = address(a{position})",
            f"if p{number} is None or p{number} % {nbytes}: return None",
        ]
    for one, low, high, other, others_low, others_high in pairs:
        meet = f"p{one} + {low} <= p{other} + {others_high} and p{other} + {others_low} <= p{one} + {high}"
        lines.append(f"if {meet}: return None")
    if looked_at:
        lines.append(f"if not holds(({''.join(f'p{number}, ' for number in looked_at)})): return None")
    lines.append("memory = structure()")
    lines += [f"memory[{slot}] = p{number}" for slot, number in pointers]
    lines += [f"pack{k}(memory, {offset}, a{position})" for k, (offset, position, _) in enumerate(floats)]
    return _made("fill", "args, address, holds, structure", [*lines, "return memory"], known)


def _arguments(n: int) -> list[str]:
    return [f"{''.join(f'a{k}, ' for k in range(n))} = args"] if n else []


def _made(name: str, parameters: str, lines: Sequence[str], known: dict[str, Any]) -> Callable[..., Any]:
    text = "\n    ".join([f"def {name}({', '.join([parameters, *[f'{one}={one}' for one in known]])}):", *lines])
    exec(text, known)  # noqa: S102  # numbers and the names above are all that is in it
    return known[name]  # type: ignore[no-any-return]  # it is one
