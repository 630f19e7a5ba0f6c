"""NumPy for a program that is sanitized: ``from offload.sanitizer import numpy as np``.

It has NumPy's names. The functions and generators give tracked arrays (`offload.sanitizer.faces`).
"""

import sys as _sys

from offload.sanitizer.faces import names_of_numpy as _names
from offload.sanitizer.faces import shown_of_numpy as _shown
from offload.sanitizer.tracked import face as _face

# Code that looks at the module's name, such as that which compiles loops, takes it for NumPy.
_face[:] = [_sys.modules[__name__]]
__name__ = "numpy"


def __getattr__(name: str) -> object:
    value = globals()[name] = _shown(name)  # found at once from now on
    return value


def __dir__() -> list[str]:
    return _names()
