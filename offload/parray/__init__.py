"""Array types and typed copies: where element *k* is, and how it gets from one place to another."""

import numpy as np

from offload.parray import seams as _seams
from offload.parray.copying import copy
from offload.parray.dimensions import dim
from offload.parray.notation import parse
from offload.parray.plans import Box, Plan, plan
from offload.parray.references import disp, func, wrap
from offload.parray.storage import view as _view
from offload.parray.teams import for_each, ranks
from offload.parray.thread_arrays import threads
from offload.parray.tiles import Tile, tiles
from offload.parray.types import ArrayType, Place

_seams.namespace = np
_seams.view = _view

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
