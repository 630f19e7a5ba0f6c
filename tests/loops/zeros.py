"""Ways in which a float becomes an integer, and a float again."""

from __future__ import annotations

import numpy as np

from tests.loops.oracle import function_of_text

NEAR_ZERO = (-0.5, -0.0, 0.0, 0.25, -0.75, -1.5, 2.5, -1e-30)

WAYS = (
    "o[{0}, i] = int(a[i])",
    "k = int(a[i]); o[{0}, i] = k",
    "o[{0}, i] = 1.0 / np.float64(np.int64(a[i]))",
    "o[{0}, i] = np.float32(np.int32(a[i]))",
    "o[{0}, i] = float(np.int8(a[i]))",
    "o[{0}, i] = np.uint64(abs(a[i]))",
    "o[{0}, i] = np.uint8(abs(a[i]))",
    "o[{0}, i] = round(a[i])",
    "o[{0}, i] = math.floor(a[i] + 0.75)",
    "o[{0}, i] = math.ceil(a[i])",
    "o[{0}, i] = math.trunc(float(a[i]))",
    "o[{0}, i] = int(a[i]) / 3",
    "o[{0}, i] = int(a[i] // 2.0 + 1.0)",
    "q = int(a[i]) if a[i] < 0 else round(a[i]); o[{0}, i] = math.copysign(1.0, q)",
    "o[{0}, i] = min(int(a[i]), 3)",
    "for j in range(2): o[{0}, i] = -0.0 + int(a[i])",
)
"""What an iteration does, of number {0}; NumPy's own functions of floats keep the sign."""


def zeros(dtype):
    """Return a loop function that does it in all ways, its arguments, and what CPython leaves in the second."""
    lines = "".join(f"        {way.format(k)}\n" for k, way in enumerate(WAYS))
    f = function_of_text(f"import math\nimport numpy as np\n\n\ndef f(a, o):\n    for i in range(a.size):\n{lines}")
    a = np.array([*NEAR_ZERO] * 8, dtype)
    o, expected = np.ones((len(WAYS), a.size), dtype), np.ones((len(WAYS), a.size), dtype)
    with np.errstate(divide="ignore"):
        f(a, expected)
    return f, a, o, expected
