"""Random loops that carry scalars from iteration to iteration, as text."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

DTYPES = ["int64", "int32", "uint8", "float64", "float32"]

# Updates of `s` by a value `e`, of which those of the first row are recurrences ``s = s op e``.
UPDATES = ["s += {e}", "s = min(s, {e})", "if {e} > s:\n    s = {e}", "s = s + {e} - 1", "s = max({e}, s)"]
OF_INTEGERS = ["s ^= {e}", "s |= {e}", "s = {e} & s", "s *= {e}"]
OTHERS = ["s = {e} - s", "s = s // 2 + {e}", "s = {e} if {e} > 1 else s", "s, t = t, s + {e}", "s = t + {e}\nt = s"]


@dataclass
class Carried:
    """A function ``f`` and its arguments; `last` are the scalars that it returns."""

    text: str
    arguments: dict[str, Any]
    last: tuple[str, ...]
    is_recurrence: bool  # each scalar is carried by updates ``s = s op e`` alone


def carried(seed: int, *, is_recurrence: bool = False) -> Carried:
    """Return the program of a seed; one of recurrences alone, of integers, if that is asked for."""
    rng = random.Random(seed)
    n, dtype = rng.choice([0, 1, 2, 7, 40, 130]), rng.choice(DTYPES[:3] if is_recurrence else DTYPES)
    values = np.random.default_rng(seed)
    arguments: dict[str, Any] = {name: values.integers(0, 5, n + 1).astype(dtype) for name in ("x", "z")}
    arguments |= {name: np.zeros(n + 1, dtype) for name in ("y", "w")}
    kinds = UPDATES + OF_INTEGERS * (not dtype.startswith("f")) + OTHERS * (not is_recurrence)
    update = rng.choice(kinds)
    value = rng.choice(["x[i]", "x[i] + z[i]", "x[n - 1 - i]", "e"])
    body = ["e = x[i] * z[i]"] * (value == "e")
    body += ["w[i] = s"] * rng.randint(0, 1)
    lines = update.format(e=value).split("\n")
    match rng.randint(0, 3):
        case 0:
            lines = ["if z[i] > 1:", *[f"    {line}" for line in lines]]
        case 1:
            lines = [f"for j in range({rng.choice(['2', 'i % 3'])}):", *[f"    {line}" for line in lines]]
    body += [*lines, "y[i] = s"]
    if rng.random() < 0.3 and "w[i] = s" not in body:  # two iterations would write one element
        body += ["if x[i] > 1:", "    w[k] = x[i]", "    k += 1"]
    if not is_recurrence and "t" in update.replace("else", ""):
        body.append("t = t + x[i]")
    elif rng.random() < 0.2:
        body.insert(0, "if x[i] == 2:\n    continue")
    start = rng.choice(["0", "x[0]", "first"])
    arguments |= {"n": n, "first": 3}
    last = ("s",) if start != "x[0]" and rng.random() < 0.5 else ()
    loop = rng.choice(["range(n)", "range(n - 1, -1, -1)"])
    text = ["def f(x, z, y, w, n, first):", "    k = 0", "    t = 1", f"    s = {start}", f"    for i in {loop}:"]
    text += [f"        {line}" for part in body for line in part.split("\n")]
    text += ["    return s"] if last else []
    return Carried("\n".join(text) + "\n", arguments, last, is_recurrence)
