"""Which arrays a NumPy function or method reads and writes.

The tables give each function a rule, by its name. A rule is a small function that looks at the arguments of a call and
notes arrays as read or written. Most functions follow one of three: they read every array among their arguments and
write ``out`` (`_READS`, where a number is the position of ``out``); they look at no element, or make a view
(`_NOTHING`); or they make a view if they can and else a copy (`_VIEWS`), which the result shows. The others have rules
of their own, so that the elements are exact: a masked operation accesses the elements under the mask alone.

A function that is in no table is refused: a guess would make findings that are wrong.
"""

from __future__ import annotations

import operator
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from offload.errors import UnsupportedError
from offload.sanitizer.elements import Storage, selected, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Accesses: TypeAlias = tuple[list[Storage], list[Storage]]

Rule: TypeAlias = "Callable[[_Call], None]"

_MISSING: Any = object()
_NO_ARRAYS = frozenset({bool, complex, float, int, str, type(None)})


def accesses_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any = _MISSING
) -> Accesses:
    """Return the arrays that a call of a NumPy function reads, and those that it writes.

    Parameters
    ----------
    function : callable
        A public function, ufunc, method of a ufunc, class or generator's method of NumPy, or ``operator.getitem`` or
        ``operator.setitem``.
    args, kwargs
        Its arguments, with plain arrays. The arguments are valid: the call has not raised, or will not.
    result : object, optional
        The result of the call, if it is known. It tells whether a function such as ``reshape`` has made a copy.

    Returns
    -------
    tuple of two lists of numpy.ndarray
        Arrays over the elements, of any shape, and some of them `Scattered`. The writes come after the reads.

    Raises
    ------
    UnsupportedError
        The accesses of the function are not known.
    """
    call = _Call(args, kwargs, result)
    _rule_of(function)(call)
    return call.reads, call.writes


def accesses_of_method(
    name: str, array: Storage, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any = _MISSING
) -> Accesses:
    """Return the arrays that a call of an array's method reads and writes, as `accesses_of` does."""
    call = _Call((array, *args), kwargs, result)
    _rule_of_method(name)(call)
    return call.reads, call.writes


def is_native(function: Any) -> bool:
    """Tell whether a function leaves the class of an array as it is: it makes a view, or calls the array's methods."""
    return function in _NATIVE_FUNCTIONS


class _Call:
    """A call whose accesses are being collected."""

    __slots__ = ("args", "kwargs", "reads", "result", "writes")

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.result = result
        self.reads: list[Storage] = []
        self.writes: list[Storage] = []

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument that is given by position or by name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def read(self, *values: Any) -> None:
        """Note every array among some arguments as read; arrays also stand in lists, tuples and dicts."""
        self._add(self.reads, values)

    def write(self, *values: Any) -> None:
        """Note every array among some arguments as written."""
        self._add(self.writes, values)

    def _add(self, accesses: list[Storage], values: Sequence[Any]) -> None:
        for value in values:
            if value.__class__ is np.ndarray:
                if value.size:
                    accesses.append(value)
            elif value.__class__ not in _NO_ARRAYS:
                accesses += [array for array in _arrays_in(value) if array.size]


def _arrays_in(value: Any, outer: tuple[Any, ...] = ()) -> Iterator[Storage]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list | tuple | dict) and not any(value is one for one in outer):
        for part in value.values() if isinstance(value, dict) else value:
            if part.__class__ not in _NO_ARRAYS:
                yield from _arrays_in(part, (*outer, value))


def shares_memory(result: Any, values: Any) -> bool:
    """Tell whether an array of a result lies in the memory of an array among some values."""
    # By bounds: allocations do not interleave.
    return any(np.may_share_memory(part, array) for part in _arrays_in(result) for array in _arrays_in(values))


# -- rules -----------------------------------------------------------------------------------------


def _nothing(call: _Call) -> None:
    """Access no element."""


def _read_all(call: _Call, out_at: int = -1) -> None:
    """Read every array, the first one under ``where``, and write ``out``."""
    args, kwargs = call.args, call.kwargs
    out = kwargs.get("out")
    if 0 <= out_at < len(args):
        out, args = args[out_at], [*args[:out_at], *args[out_at + 1 :]]
    where = kwargs.get("where", True)
    if isinstance(where, np.ndarray) and args and isinstance(args[0], np.ndarray):
        call.reads += selected(args[0], where)
        args = args[1:]
    call.read(*args, *[value for name, value in kwargs.items() if name != "out"])
    call.write(out)


def _view(call: _Call) -> None:
    """Read every array, unless the result is a view."""
    if not shares_memory(call.result, call.args):
        _read_all(call)


def _read_and_write(call: _Call) -> None:
    """Read every array, and write the first one."""
    _read_all(call)
    call.write(call.args[0])


def _overwrite(call: _Call, out_at: int, flag_at: int) -> None:
    """Read every array, and write the first one if ``overwrite_input`` allows it."""
    _read_all(call, out_at)
    if call.get(flag_at, "overwrite_input", default=False):
        call.write(call.get(0, "a"))


def _read_argument(call: _Call, position: int, name: str) -> None:
    """Read one argument; the others are shapes, or arrays of which the result is a view."""
    call.read(call.get(position, name))


def _get_item(call: _Call) -> None:
    array, index = call.args
    call.read(index)
    items = index if type(index) is tuple else (index,)
    is_fields = isinstance(index, list) and bool(index) and isinstance(index[0], str)
    # A number that is an array makes NumPy copy the elements, as a mask does.
    is_view = is_fields or all(
        item is None or item is Ellipsis or isinstance(item, slice | str) or _is_number(item) for item in items
    )
    if not is_view or (sum(map(_is_number, items)) == array.ndim == len(items)):
        call.read(taken(array, index))


def _is_number(item: Any) -> bool:
    """Tell whether an item of an index is a number of a row."""
    return isinstance(item, int | np.integer) and not isinstance(item, bool)


def _set_item(call: _Call) -> None:
    array, index, value = call.args
    call.read(index, value)
    call.write(taken(array, index))


def _item(call: _Call) -> None:
    array, *index = call.args
    place = index[0] if len(index) == 1 else tuple(index)
    if isinstance(place, tuple):
        call.read(taken(array, place))
    else:
        call.read(taken(array, _flat(array, place)))


def _flat(array: Storage, index: Any, mode: str = "raise") -> tuple[Any, ...]:
    """Return the index of elements that are numbered in C order."""
    if not array.ndim:
        return (... if np.size(index) else np.zeros((), bool),)  # which is all of it, or nothing
    at = np.asarray(index, np.int64)
    at = np.clip(at, 0, array.size - 1) if mode == "clip" else at % max(array.size, 1)
    return np.unravel_index(at.reshape(-1), array.shape)


def _take(call: _Call) -> None:
    array, indices = call.get(0, "a"), call.get(1, "indices")
    axis, mode = call.get(2, "axis"), call.get(4, "mode", "raise")
    call.read(indices)
    call.write(call.get(3, "out"))
    if not isinstance(array, np.ndarray):
        call.read(array)
    elif axis is None or not array.ndim:
        call.read(taken(array, _flat(array, indices, mode)))
    elif array.shape[axis]:
        n, at = array.shape[axis], np.asarray(indices, np.int64)
        at = np.clip(at, 0, n - 1) if mode == "clip" else at % n
        call.read(taken(np.moveaxis(array, axis, 0), at.reshape(-1)))


def _put(call: _Call) -> None:
    array, indices, values = call.get(0, "a"), call.get(1, "ind"), call.get(2, "v")
    if indices is None:  # the method's names
        indices, values = call.get(1, "indices"), call.get(2, "values")
    call.read(indices, values)
    call.write(taken(array, _flat(array, indices, call.get(3, "mode", "raise"))))


def _along(array: Storage, indices: Any, axis: Any) -> list[Storage]:
    """Return the elements that ``take_along_axis`` takes."""
    indices = np.asarray(indices)
    if axis is None:
        return taken(array, _flat(array, indices))
    shape = np.broadcast_shapes(
        *([1 if at == axis % array.ndim else n for at, n in enumerate(side.shape)] for side in (array, indices))
    )
    places = list(np.ogrid[tuple(slice(n) for n in shape)])
    places[axis] = indices
    return taken(array, tuple(places))


def _take_along_axis(call: _Call) -> None:
    array, indices, axis = call.get(0, "arr"), call.get(1, "indices"), call.get(2, "axis", -1)
    call.read(indices)
    call.read(_along(array, indices, axis) if isinstance(array, np.ndarray) else array)


def _put_along_axis(call: _Call) -> None:
    array, indices = call.get(0, "arr"), call.get(1, "indices")
    call.read(indices, call.get(2, "values"))
    call.write(_along(array, indices, call.get(3, "axis")))


def _compress(call: _Call) -> None:
    condition, array, axis = call.get(0, "condition"), call.get(1, "a"), call.get(2, "axis")
    call.read(condition)
    call.write(call.get(3, "out"))
    if isinstance(array, np.ndarray):
        at = np.flatnonzero(condition)
        place = _flat(array, at) if axis is None else at
        call.read(taken(array if axis is None else np.moveaxis(np.atleast_1d(array), axis, 0), place))
    else:
        call.read(array)


def _compress_method(call: _Call) -> None:
    array, *rest = call.args
    kwargs = dict(call.kwargs)
    call.args = (rest[0] if rest else kwargs.pop("condition"), array, *rest[1:])
    call.kwargs = kwargs
    _compress(call)


def _extract(call: _Call) -> None:
    condition, array = call.get(0, "condition"), call.get(1, "arr")
    call.read(condition)
    call.read(taken(array, _flat(array, np.flatnonzero(condition))) if isinstance(array, np.ndarray) else array)


def _copyto(call: _Call) -> None:
    where = call.get(3, "where", True)
    to, source = call.get(0, "dst"), call.get(1, "src")
    call.read(where)
    call.read(selected(source, where) if isinstance(source, np.ndarray) else source)
    call.write(selected(to, where))


def _putmask(call: _Call, names: Sequence[str]) -> None:
    array, mask, values = (call.get(at, name) for at, name in enumerate(names))
    call.read(mask, values)
    call.write(selected(array, np.reshape(mask, array.shape)))


def _where(call: _Call) -> None:
    condition, *rest = call.args
    call.read(condition)
    if not rest:
        return
    for value, mask in zip(rest, (condition, np.logical_not(condition)), strict=True):
        call.read(selected(value, mask) if isinstance(value, np.ndarray) else value)


def _triangle(call: _Call, make: Callable[..., Storage], *, is_kept: bool) -> None:
    array = call.get(0, "m")
    if isinstance(array, np.ndarray) and array.ndim > 1:
        mask = make(*array.shape[-2:], k=call.get(1, "k", 0) - (not is_kept), dtype=bool)
        call.read(selected(array, mask if is_kept else ~mask))
    else:
        call.read(array)


def _trace(call: _Call, names: Sequence[str]) -> None:
    array = call.get(0, names[0])
    if isinstance(array, np.ndarray):
        first, second = (-2, -1) if len(names) == 2 else (0, 1)
        axes = [call.get(at, name, axis) for at, name, axis in ((2, "axis1", first), (3, "axis2", second))]
        call.read(np.diagonal(array, call.get(1, "offset", 0), *axes))
    else:
        call.read(array)
    call.write(call.get(5, "out"))


def _fill_diagonal(call: _Call) -> None:
    array = call.get(0, "a")
    call.read(call.get(1, "val"))
    step = array.shape[1] + 1 if array.ndim == 2 else 1 + int(np.cumprod(array.shape[:-1]).sum())
    wraps = call.get(2, "wrap", default=False)
    end = None if array.ndim > 2 or wraps else array.shape[1] * array.shape[1]
    call.write(taken(array, _flat(array, np.arange(array.size)[:end:step])))


def _diag(call: _Call) -> None:
    array = call.get(0, "v")
    if not isinstance(array, np.ndarray) or array.ndim == 1:
        call.read(array)  # of two dimensions, it gives a view


def _nan_to_num(call: _Call) -> None:
    array = call.get(0, "x")
    call.read(array)
    if call.get(1, "copy", default=True) is False:
        call.write(array)


def _ix(call: _Call) -> None:
    call.read([value for value in call.args if not isinstance(value, np.ndarray) or value.dtype == bool])


def _byteswap(call: _Call) -> None:
    call.read(call.args[0])
    if call.get(1, "inplace", default=False):
        call.write(call.args[0])


def _set_field(call: _Call) -> None:
    array = call.args[0]
    call.read(call.get(1, "val"))
    call.write(array.getfield(call.get(2, "dtype"), call.get(3, "offset", 0)))


def _fill(call: _Call) -> None:
    call.read(call.get(1, "value"))
    call.write(call.args[0])


def _shuffle(call: _Call) -> None:
    call.read(call.get(0, "x"))
    call.write(call.get(0, "x"))


def _iterate(call: _Call) -> None:
    """Access the operands of an iterator by their flags."""
    operands, flags = call.get(0, "op"), call.get(2, "op_flags")
    given = list(operands) if isinstance(operands, list | tuple) else [operands]
    if flags is None:
        flags = [["readonly"] if operand is not None else ["writeonly"] for operand in given]
    elif flags and isinstance(flags[0], str):
        flags = [flags] * len(given)
    for operand, words in zip(given, flags, strict=False):
        if not {"writeonly"} & set(words):
            call.read(operand)
        if {"writeonly", "readwrite"} & set(words):
            call.write(operand)


def _ufunc(call: _Call, ufunc: np.ufunc, method: str) -> None:
    """Access the arguments of a ufunc or of one of its methods."""
    args, kwargs = call.args, call.kwargs
    if method == "at":
        array, index, *values = args
        call.read(index, values, taken(array, index))
        call.write(taken(array, index))
        return
    count, out_at = {"__call__": (ufunc.nin, ufunc.nin), "outer": (2, 2), "reduceat": (2, 4)}.get(method, (1, 3))
    inputs = args[:count]
    outs = [*args[out_at:]] if method == "__call__" else [*args[out_at : out_at + 1]]
    outs += [kwargs["out"]] if "out" in kwargs else []
    where = kwargs.get("where", args[6] if method == "reduce" and len(args) > 6 else True)
    if isinstance(where, np.ndarray):
        call.read(where)
        call.reads += chain.from_iterable(selected(array, where) for array in _arrays_in(inputs))
        if method == "reduce":
            call.write(outs)
        else:
            call.writes += chain.from_iterable(selected(array, where) for array in _arrays_in(outs))
    elif where is True or where:
        call.read(*inputs, kwargs.get("initial"))
        call.write(*outs)


# -- tables ----------------------------------------------------------------------------------------

_READS = """
    all:2 allclose amax:2 amin:2 angle any:2 append apply_along_axis apply_over_axes arange argmax:2 argmin:2
    argpartition argsort argwhere around:2 array2string array_equal array_equiv array_repr array_str asarray_chkfinite
    average bartlett base_repr binary_repr bincount blackman block bmat busday_count:5 busday_offset:6 choose:2 clip:3
    column_stack concat:2 concatenate:2 convolve copy corrcoef correlate count_nonzero cov cross cumprod:3 cumsum:3
    cumulative_prod cumulative_sum datetime_as_string delete diagflat diff digitize dot:2 dstack ediff1d eye fix:1
    flatnonzero format_float_positional format_float_scientific fromfunction fromiter full geomspace gradient hamming
    hanning histogram histogram2d histogram_bin_edges histogramdd hstack i0 identity in1d inner insert interp
    intersect1d is_busday:4 isclose iscomplex isin isneginf:1 isposinf:1 isreal kaiser kron lexsort linspace logspace
    max:2 mean:3 min:2 nanargmax:2 nanargmin:2 nancumprod:3 nancumsum:3 nanmax:2 nanmean:3 nanmin:2 nanprod:3 nanstd:3
    nansum:3 nanvar:3 nonzero outer:2 packbits pad partition piecewise poly polyadd polyder polydiv polyfit polyint
    polymul polysub polyval prod:3 ptp:2 ravel_multi_index real_if_close repeat resize roll roots round:2 row_stack save
    savetxt savez savez_compressed searchsorted select setdiff1d setxor1d sinc sort sort_complex stack:2 std:3 sum:3
    tensordot tile trapezoid trapz trim_zeros union1d unique unique_all unique_counts unique_inverse unique_values
    unpackbits unravel_index unwrap vander var:3 vdot vstack
"""
"""Functions that read every array; a number is the position of ``out``."""

_NOTHING = """
    array_split:1:indices_or_sections broadcast_arrays broadcast_shapes broadcast_to can_cast common_type
    datetime_data diag_indices diag_indices_from diagonal dsplit:1:indices_or_sections einsum_path empty empty_like
    expand_dims flip fliplr flipud from_dlpack frombuffer fromfile fromregex fromstring frompyfunc
    full_like:1:fill_value genfromtxt get_include get_printoptions getbufsize geterr geterrcall
    hsplit:1:indices_or_sections imag indices info iscomplexobj isdtype isfortran isrealobj isscalar issubdtype
    iterable load loadtxt mask_indices matrix_transpose may_share_memory min_scalar_type mintypecode moveaxis ndim
    ones ones_like permute_dims printoptions promote_types real result_type rollaxis rot90 set_printoptions setbufsize
    seterr seterrcall shape shares_memory show_config show_runtime size split:1:indices_or_sections squeeze swapaxes
    test transpose tri tril_indices tril_indices_from triu_indices triu_indices_from typename unstack
    vsplit:1:indices_or_sections zeros zeros_like
"""
"""Functions that look at no element, or make a view; they read the argument whose position and name stand here."""

_VIEWS = """
    array asanyarray asarray ascontiguousarray asfortranarray asmatrix astype atleast_1d atleast_2d atleast_3d einsum
    meshgrid ravel require reshape
"""
"""Functions that make a view, or else a copy."""

_OWN: dict[str, Rule] = {
    "compress": _compress,
    "copyto": _copyto,
    "diag": _diag,
    "extract": _extract,
    "fill_diagonal": _fill_diagonal,
    "ix_": _ix,
    "median": partial(_overwrite, out_at=2, flag_at=3),
    "nan_to_num": _nan_to_num,
    "nanmedian": partial(_overwrite, out_at=2, flag_at=3),
    "nanpercentile": partial(_overwrite, out_at=3, flag_at=4),
    "nanquantile": partial(_overwrite, out_at=3, flag_at=4),
    "nested_iters": _iterate,
    "percentile": partial(_overwrite, out_at=3, flag_at=4),
    "place": partial(_putmask, names=("arr", "mask", "vals")),
    "put": _put,
    "put_along_axis": _put_along_axis,
    "putmask": partial(_putmask, names=("a", "mask", "values")),
    "quantile": partial(_overwrite, out_at=3, flag_at=4),
    "take": _take,
    "take_along_axis": _take_along_axis,
    "trace": partial(_trace, names=("a", "offset", "axis1", "axis2")),
    "tril": partial(_triangle, make=np.tri, is_kept=True),
    "triu": partial(_triangle, make=np.tri, is_kept=False),
    "where": _where,
}

_LINALG = """
    cholesky cond cross det eig eigh eigvals eigvalsh inv lstsq matmul matrix_norm matrix_power matrix_rank multi_dot
    norm outer pinv qr slogdet solve svd svdvals tensordot tensorinv tensorsolve vecdot vector_norm
"""
_FFT = """
    fft:4 fft2:4 fftn:4 hfft:4 ifft:4 ifft2:4 ifftn:4 ihfft:4 irfft:4 irfft2:4 irfftn:4 rfft:4 rfft2:4 rfftn:4
    fftfreq fftshift ifftshift rfftfreq
"""
_RANDOM = "random:2 standard_exponential:3 standard_gamma:3 standard_normal:2"
"""Methods of generators that have ``out``; its position is that of the call."""

_METHODS = """
    all:2 any:2 argmax:2 argmin:2 argpartition argsort choose:2 clip:3 copy cumprod:3 cumsum:3 dot:2 dump dumps flatten
    max:2 mean:3 min:2 nonzero prod:3 repeat round:2 searchsorted std:3 sum:3 tobytes tofile tolist
    tostring var:3
    __abs__ __add__ __and__ __bool__ __complex__ __contains__ __copy__ __deepcopy__ __divmod__ __eq__ __float__
    __floordiv__ __format__ __ge__ __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__
    __mul__ __ne__ __neg__ __or__ __pos__ __pow__ __radd__ __rand__ __rdivmod__ __reduce__ __reduce_ex__ __repr__
    __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __rpow__ __rrshift__ __rshift__ __rsub__
    __rtruediv__ __rxor__ __str__ __sub__ __truediv__ __xor__ ptp:2
"""
_METHODS_WRITE = """
    partition sort __iadd__ __iand__ __ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__ __ior__ __ipow__
    __irshift__ __isub__ __itruediv__ __ixor__
"""
_METHODS_VIEW = "astype conj conjugate ravel reshape __array__"
_METHODS_NOTHING = """
    T base ctypes data device diagonal dtype flags flat getfield imag itemset itemsize mT nbytes ndim newbyteorder real
    setflags shape size squeeze strides swapaxes to_device transpose view
    __array_finalize__ __array_function__ __array_interface__ __array_namespace__ __array_priority__ __array_struct__
    __array_ufunc__ __array_wrap__ __buffer__ __class__ __class_getitem__ __delattr__ __delitem__ __dir__ __dlpack__
    __dlpack_device__ __doc__ __getattribute__ __getstate__ __hash__ __init__ __init_subclass__ __iter__ __len__ __new__
    __release_buffer__ __setattr__ __setstate__ __sizeof__ __subclasshook__ _set_dtype _set_shape
"""
"""Attributes, views, and protocols. ``__iter__`` gives views, or numbers, which ``__getitem__`` reads."""

_METHODS_OWN: dict[str, Rule] = {
    "__getitem__": _get_item,
    "__setitem__": _set_item,
    "byteswap": _byteswap,
    "compress": _compress_method,
    "fill": _fill,
    "item": _item,
    "put": _put,
    "resize": _read_all,
    "setfield": _set_field,
    "take": _take,
    "trace": partial(_trace, names=("a", "offset", "axis1", "axis2")),
}

_CLASSES: dict[Any, Rule] = {
    np.nditer: _iterate,
    np.ndenumerate: _read_all,
    np.broadcast: _nothing,
    np.ndindex: _nothing,
    np.poly1d: _view,
    np.vectorize: _nothing,
    np.matrix: _view,
    np.memmap: _nothing,
    np.recarray: _nothing,
    np.ndarray: _nothing,
    np.busdaycalendar: _read_all,
}


def _rules(text: str, default: Callable[[str], Rule]) -> dict[str, Rule]:
    """Return a rule for each word of a table, whose part after a colon goes to ``default``."""
    rules = {}
    for word in text.split():
        name, _, rest = word.partition(":")
        rules[name] = default(rest)
    return rules


def _reading(out_at: str) -> Rule:
    return partial(_read_all, out_at=int(out_at)) if out_at else _read_all


def _reading_one(which: str) -> Rule:
    position, _, name = which.partition(":")
    return partial(_read_argument, position=int(position), name=name) if which else _nothing


def _found(modules: Sequence[Any], rules: Mapping[str, Rule]) -> dict[Any, Rule]:
    """Return the rules by function, for the functions that this NumPy has."""
    # A name that the module only computes is deprecated, and to look it up is a warning.
    return {vars(module)[name]: rule for module in modules for name, rule in rules.items() if name in vars(module)}


def _all_of(module: Any) -> dict[Any, Rule]:
    """Return a rule for each function of a module that works element by element."""
    functions = (one for name, one in vars(module).items() if not name.startswith("_"))
    return {one: _read_all for one in functions if callable(one) and not isinstance(one, type | np.ufunc)}


def _functions() -> dict[Any, Rule]:
    lib = _rules("as_strided sliding_window_view byte_bounds normalize_axis_index normalize_axis_tuple", _reading_one)
    views = _rules("diagonal matrix_transpose test", _reading_one)
    linalg: dict[str, Rule] = {**_rules(_LINALG, _reading), **views, "trace": partial(_trace, names=("x", "offset"))}
    whole: dict[str, Rule] = {
        **_rules(_READS, _reading),
        **_rules(_NOTHING, _reading_one),
        **_rules(_VIEWS, lambda _: _view),
        **_OWN,
    }
    return {
        **_all_of(np.char),
        **_all_of(np.strings),
        **_all_of(np.emath),
        **_found([np.fft], {**_rules(_FFT, _reading), "test": _nothing}),
        **_found([np.linalg], linalg),
        **_found([np.lib.stride_tricks, np.lib.array_utils], lib),
        **_found([np], whole),
        **_CLASSES,
        operator.getitem: _get_item,
        operator.setitem: _set_item,
    }


_RULES = _functions()
KEEPS_LISTS: frozenset[Any] = frozenset(
    {np.array, np.asanyarray, np.asarray, np.ascontiguousarray, np.asfortranarray, np.require}
)
"""Functions that may put a list which they are given into an array of objects."""

_NATIVE_FUNCTIONS: frozenset[Any] = frozenset(
    (
        *_found([np], _rules(_NOTHING, _reading_one)),
        *(np.astype, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.meshgrid, np.ravel, np.reshape),
        *(np.lib.stride_tricks.as_strided, np.linalg.diagonal, np.linalg.matrix_transpose),
    )
)
_METHOD_RULES: dict[str, Rule] = {
    **_rules(_METHODS, _reading),
    **_rules(_METHODS_WRITE, lambda _: _read_and_write),
    **_rules(_METHODS_VIEW, lambda _: _view),
    **_rules(_METHODS_NOTHING, _reading_one),
    **_METHODS_OWN,
}
_RANDOM_RULES: dict[str, Rule] = {**_rules(_RANDOM, _reading), "shuffle": _shuffle}

_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)


def is_known(function: Any) -> bool:
    """Tell whether the accesses of a function are known."""
    try:
        _rule_of(function)
    except UnsupportedError:
        return False
    return True


def _rule_of(function: Any) -> Rule:
    rule = _RULES.get(function)
    if rule is not None:
        return rule
    owner = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if isinstance(function, np.ufunc):
        return _rule_of_ufunc(function, "__call__")
    if isinstance(owner, np.ufunc):
        return _rule_of_ufunc(owner, name)
    if isinstance(owner, _GENERATORS):
        return _RANDOM_RULES.get(name, _read_all)
    if getattr(function, "__objclass__", None) is np.ndarray or isinstance(owner, np.ndarray):
        return _rule_of_method(name) if owner is None else partial(_bound, name=name, array=owner)
    # ``r_``, ``mgrid`` and the like are indexed; scalar types convert; the functions of `vectorize` call the program's.
    if isinstance(function, np.vectorize | type) or isinstance(owner, _GRIDS):
        return _read_all
    module = getattr(function, "__module__", None) or type(function).__name__
    raise UnsupportedError(
        f"sanitize: it is not known which arrays {module}.{name or function!r} reads and writes; pass it plain arrays, "
        "such as x.view(numpy.ndarray)"
    )


_GRIDS = (type(np.r_).__mro__[1], type(np.c_), type(np.mgrid).__mro__[1], type(np.s_))


def _bound(call: _Call, name: str, array: Storage) -> None:
    call.args = (array, *call.args)
    _rule_of_method(name)(call)


@lru_cache(1024)
def _rule_of_ufunc(ufunc: np.ufunc, method: str) -> Rule:
    return partial(_ufunc, ufunc=ufunc, method=method)


def _rule_of_method(name: str) -> Rule:
    rule = _METHOD_RULES.get(name)
    if rule is None:
        raise UnsupportedError(
            f"sanitize: it is not known what ndarray.{name} reads and writes; NumPy {np.__version__} has a method that "
            "this version of offload does not know"
        )
    return rule
