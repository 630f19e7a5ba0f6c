"""The NumPy that makes the host arrays which a program gets from the library.

The sanitizer puts its own in its place, whose arrays are tracked. The library's own arrays are always NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

namespace: Any = np
