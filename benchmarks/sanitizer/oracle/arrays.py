"""The oracle's own arrays, of the host and of devices, and its `numpy`.

An `Array` is no NumPy array and has no buffer: an operation that this file does not know raises, rather than going
unnoticed. Each operation notes which arrays it reads and writes, and NumPy computes it at once.
"""

from __future__ import annotations

import operator
import types

import numpy as np

from benchmarks.sanitizer.oracle import recording

FACTS = frozenset({"shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "flags"})
VIEWS = frozenset({"T", "real", "imag", "reshape", "ravel", "transpose", "view", "swapaxes", "squeeze", "diagonal"})
CHANGES = frozenset({"fill", "sort", "partition", "put", "itemset", "resize", "setfield", "byteswap"})
IN_PLACE = frozenset({"copyto", "put", "place", "putmask", "fill_diagonal", "shuffle"})
ALIASES = frozenset(
    (
        *("split", "array_split", "hsplit", "vsplit", "broadcast_to", "reshape", "ravel", "transpose", "swapaxes"),
        *("moveaxis", "squeeze", "expand_dims", "atleast_1d", "atleast_2d", "asarray", "asanyarray"),
        *("ascontiguousarray", "asfortranarray", "flip", "diagonal"),
    )
)
"""Functions that give views where they can, without a look at the elements."""
SHAPES = frozenset(
    ("zeros_like", "empty_like", "ones_like", "full_like", "shape", "ndim", "size", "shares_memory", "may_share_memory")
)


class World:
    """What arrays need of the run: who runs, and where accesses are noted."""

    def __init__(self, recorder, actor):
        self.recorder, self.actor = recorder, actor
        self.accessed = None  # the present tables' function, which are made later

    def note(self, array, space, *, writes, found=None):
        """Note an access by the code that runs."""
        access = self.recorder.note(array, writes=writes, actor=self.actor(), found=found)
        if access is not None:
            self.accessed(access, space)


class Array:
    """An array of the host (`space` None) or of a device."""

    __slots__ = ("__weakref__", "plain", "space", "world")
    __array_ufunc__ = None
    __hash__ = object.__hash__

    def __init__(self, plain, space, world):
        self.plain, self.space, self.world = plain, space, world
        world.recorder.kept.append(plain)

    def of(self, plain):
        """Return a view, or another array in the same space."""
        return Array(plain, self.space, self.world)

    def noted(self, *, writes):
        """Note that all elements are read or written."""
        self.world.note(self.plain, self.space, writes=writes)

    @property
    def bytes(self):
        return recording.Bytes.of(self.plain)

    def __array__(self, dtype=None, copy=None):
        raise TypeError("the oracle's arrays are no NumPy arrays")

    def __getattr__(self, name):
        if name in FACTS:
            return getattr(self.plain, name)
        if name.startswith("_") or not hasattr(self.plain, name):
            raise AttributeError(name)
        if name in VIEWS:
            found = getattr(self.plain, name)
            return self.of(found) if isinstance(found, np.ndarray) else lambda *a, **k: self._view(found(*a, **k))
        return lambda *args, **kwargs: self._call(name, args, kwargs)

    def _view(self, found):
        if not np.shares_memory(found, self.plain) and found.size:
            self.noted(writes=False)
        return self.of(found)

    def _call(self, name, args, kwargs):
        if name == "get":
            raise AttributeError(name)
        if name in CHANGES:
            plain, kwargs = unwrapped(self.world, (args, kwargs), self.space)
            result = getattr(self.plain, name)(*plain, **kwargs)
            self.noted(writes=True)
            return result
        return called(self.world, lambda a, *r, **k: getattr(a, name)(*r, **k), (self, *args), kwargs)

    def get(self, out=None):
        self.noted(writes=False)
        if out is None:
            return Array(self.plain.copy(), None, self.world)
        out.plain[...] = self.plain
        out.noted(writes=True)
        return out

    def __getitem__(self, index):
        index = unwrapped(self.world, index, self.space)
        found = self.plain[index]
        if isinstance(found, np.ndarray) and np.may_share_memory(found, self.plain) and is_basic(index):
            return self.of(found)
        self._element(index, writes=False)
        return found if self.space is None and not isinstance(found, np.ndarray) else self.of(np.asarray(found))

    def __setitem__(self, index, value):
        index = unwrapped(self.world, index, self.space)
        value = unwrapped(self.world, value, self.space)
        self.plain[index] = value
        self._element(index, writes=True)

    def _element(self, index, *, writes):
        starts = recording.addresses(self.plain)[index]
        found = recording.Bytes.at(starts, self.plain.itemsize)
        if is_basic(index) and isinstance(part := self.plain[index], np.ndarray):
            found = recording.Bytes.of(part)
        self.world.note(self.plain, self.space, writes=writes, found=found)

    def __len__(self):
        return len(self.plain)

    def __iter__(self):
        return (self[k] for k in range(len(self.plain)))

    def _scalar(self):
        self.noted(writes=False)
        return self.plain

    def __float__(self):
        return float(self._scalar())

    def __int__(self):
        return int(self._scalar())

    def __bool__(self):
        return bool(self._scalar())

    def __index__(self):
        return operator.index(self._scalar())

    def __repr__(self):
        return repr(self._scalar())

    def __str__(self):
        return str(self._scalar())

    def __format__(self, spec):
        return format(self._scalar() if self.ndim else self._scalar()[()], spec)


def is_basic(index):
    """Tell whether an index makes a view."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is Ellipsis or isinstance(part, (int, np.integer, slice)) for part in parts)


def _operators():
    """Give `Array` Python's operators: those of NumPy, in place and not."""
    names = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"]
    for name in names:
        function, in_place = getattr(operator, f"__{name}__"), getattr(operator, f"__i{name}__")
        setattr(Array, f"__{name}__", lambda a, b, f=function: called(a.world, f, (a, b), {}))
        setattr(Array, f"__r{name}__", lambda a, b, f=function: called(a.world, f, (b, a), {}))
        setattr(Array, f"__i{name}__", lambda a, b, f=in_place: changed(a, b, f))
    for name in ("lt", "le", "eq", "ne", "gt", "ge"):
        function = getattr(operator, f"__{name}__")
        setattr(Array, f"__{name}__", lambda a, b, f=function: called(a.world, f, (a, b), {}))
    for name in ("neg", "pos", "abs", "invert"):
        function = getattr(operator, f"__{name}__")
        setattr(Array, f"__{name}__", lambda a, f=function: called(a.world, f, (a,), {}))


def changed(array, value, function):
    """Carry out an operation in place."""
    array.noted(writes=False)
    value = unwrapped(array.world, value, array.space)
    function(array.plain, value)
    array.noted(writes=True)
    return array


def unwrapped(world, value, space, *, read=True):
    """Return a value with NumPy arrays in place of the oracle's; reads them."""
    if isinstance(value, Array):
        if value.space != space and value.ndim:
            raise TypeError("an operation mixes arrays of the host and a device, or of two devices")
        if read:
            value.noted(writes=False)
        return value.plain
    if type(value) in (list, tuple):
        return type(value)(unwrapped(world, part, space, read=read) for part in value)
    if type(value) is dict:
        return {key: unwrapped(world, part, space, read=read) for key, part in value.items()}
    return value


def space_of(value):
    """Return the spaces of the arrays in a value."""
    if isinstance(value, Array):
        return {value.space}
    if type(value) in (list, tuple):
        return set().union(*map(space_of, value))
    return set()


def called(world, function, args, kwargs, *, space=None, read=True):
    """Call a function of NumPy, and note the accesses."""
    kwargs = dict(kwargs)
    out = kwargs.pop("out", None)
    spaces = space_of([*args, *kwargs.values()])
    for found in spaces:
        space = found if space is None else space
    plain = unwrapped(world, list(args), space, read=read)
    named = unwrapped(world, kwargs, space, read=read)
    if out is not None:
        outs = out if isinstance(out, tuple) else (out,)
        result = function(*plain, **named, out=tuple(a.plain for a in outs) if isinstance(out, tuple) else out.plain)
        for array in outs:
            array.noted(writes=True)
        return out if isinstance(result, np.ndarray) else result
    return wrapped(world, function(*plain, **named), space)


def wrapped(world, result, space):
    """Return what a function gave, as the oracle's arrays; numbers of a device become arrays without dimensions."""
    if isinstance(result, np.ndarray):
        return Array(result, space, world)
    if isinstance(result, np.generic) and space is not None:
        return Array(np.asarray(result), space, world)
    if type(result) in (list, tuple):
        return type(result)(wrapped(world, part, space) for part in result)
    if isinstance(result, np.random.Generator):
        return Face(world, result, space)
    return result


class Face:
    """A module, generator or ufunc of NumPy, whose functions work on the oracle's arrays."""

    def __init__(self, world, inner, space=None):
        self._world, self._inner, self._space = world, inner, space

    def __call__(self, *args, **kwargs):
        name = getattr(self._inner, "__name__", "")
        if name in IN_PLACE:
            first, *rest = args
            plain = unwrapped(self._world, rest, self._space)
            self._inner(first.plain, *plain, **kwargs)
            first.noted(writes=True)
            return None
        quiet = name in ALIASES or name in SHAPES
        result = called(self._world, self._inner, args, kwargs, space=self._space, read=not quiet)
        if name in ALIASES and isinstance(result, Array) and args and isinstance(args[0], Array):
            return args[0]._view(result.plain)  # noqa: SLF001  # the same file
        return result

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name == "ndarray":
            return Array
        if isinstance(found, type):
            return found
        if isinstance(found, types.ModuleType) or callable(found):
            return Face(self._world, found, self._space)
        return found


_operators()
