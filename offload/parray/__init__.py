"""Array types and typed copies: where element *k* is, and how it gets from one place to another.

Examples
--------
Transpose an array by a copy from one type to another:

>>> A = parray.ArrayType((2, 3))
>>> B = parray.ArrayType((A[1], A[0]))  # the dimensions of A, swapped
>>> a, b = np.arange(6), np.zeros(6, int)
>>> parray.copy(A, a, to=(B, b))  # b[B(k)] = a[A(k)] for every k
>>> b
array([0, 2, 4, 1, 3, 5])
"""

import numpy as np

from offload.loops.front import layouts as _layouts
from offload.parray import reckoning as _reckoning
from offload.parray import seams as _seams
from offload.parray.copying import copy
from offload.parray.dimensions import dim
from offload.parray.indexing import Place
from offload.parray.notation import parse
from offload.parray.plans import Box, Plan, plan
from offload.parray.references import disp, func, wrap
from offload.parray.storage import view as _view
from offload.parray.teams import for_each, ranks
from offload.parray.thread_arrays import threads
from offload.parray.tiles import Tile, tiles
from offload.parray.types import ArrayType

_seams.namespace = np
_seams.view = _view
_layouts.enter(ArrayType, _layouts.Reckoner(_reckoning.check, _reckoning.is_affine, _reckoning.place))

__all__ = [
    "ArrayType",
    "Box",
    "Place",
    "Plan",
    "Tile",
    "copy",
    "dim",
    "disp",
    "for_each",
    "func",
    "parse",
    "plan",
    "ranks",
    "threads",
    "tiles",
    "wrap",
]
