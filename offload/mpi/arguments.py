"""Arguments of a call of MPI, checked at its construct: a call that raises in its task fails the later ones as well."""

from __future__ import annotations

import inspect
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from offload.arrays.items import array_section, is_device_array, label
from offload.errors import ClauseError
from offload.mpi.methods import ROOTED, BufferAccess

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.mpi.operations import Operation

# Of NumPy's types those that are MPI's as well, where their bytes are in this machine's order.
_NUMBERS = "?bhilqBHILQefdgFDG"

# Methods whose buffers have a datatype for each rank: an array alone says too little.
_OF_LISTS = frozenset({"Ialltoallw", "Ineighbor_alltoallw"})
# Of the buffers of a call with two messages, the argument that says with whom.
_PEERS = {"sendbuf": ("dest",), "recvbuf": ("source",)}


def communicator(name: str, comm: Any) -> MPI.Comm:
    """Return the communicator of a construct, by default `MPI.COMM_WORLD`; raise `ClauseError` for anything else."""
    if comm is None:
        return MPI.COMM_WORLD
    if not isinstance(comm, MPI.Comm):
        raise ClauseError(
            f"MPI {name}: comm={comm!r:.60} is not a communicator; pass one from mpi4py, such as MPI.COMM_WORLD"
        )
    return comm


def check_arguments(operation: Operation) -> None:
    """Raise `ClauseError` if an argument of a known operation is missing, has a wrong type, or is not known."""
    known, named = operation.known, operation.named
    if known is None:
        return
    n_given = len(operation.args) + len(operation.kwargs)  # more than are named: one was given twice, or has no place
    if n_given != len(named) or not known.required <= named.keys() or not named.keys() <= known.all_names:
        _check_names(operation)
    for parameter, value in named.items():
        if parameter in _TYPES:
            is_right, allowed = _TYPES[parameter]
            if not is_right(value):
                raise ClauseError(f"MPI {operation.name}: {parameter}={value!r:.60} is not allowed; give {allowed}")
        elif operation.name in _OF_LISTS and not isinstance(value, (list, tuple)) and value is not MPI.IN_PLACE:
            raise ClauseError(
                f"MPI {operation.name}: {parameter} is {_told(value)}; give [array, (counts, displacements), datatypes]"
            )


def _check_names(operation: Operation) -> None:
    """Raise `ClauseError` if the method does not take such arguments at all."""
    try:
        inspect.signature(operation.method).bind(*operation.args, **operation.kwargs)
    except TypeError as error:
        parameters = ", ".join(inspect.signature(operation.method).parameters)
        raise ClauseError(f"MPI {operation.name}: {error}; the parameters are {parameters}") from None
    except ValueError:  # it does not tell its signature
        return


def _is_integer(value: Any) -> bool:
    try:
        index(value)
    except TypeError:
        return False
    return True


def _is_operation(value: Any) -> bool:
    return isinstance(value, MPI.Op)


def _are_counts(value: Any) -> bool:
    try:
        return value is None or all(map(_is_integer, value))
    except TypeError:
        return False


# Of each parameter that is no buffer, what tells whether a value is right, and what is allowed.
_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(["dest", "source", "root", "tag", "sendtag", "recvtag"], (_is_integer, "an integer")),
    "op": (_is_operation, "an operation of mpi4py, such as MPI.SUM"),
    "recvcounts": (_are_counts, "None, or a sequence of integers, one for each rank"),
}


# -- buffers -------------------------------------------------------------------------------------------
def array_of(operation: Operation, parameter: str, *, has_depend: bool) -> Any:
    """Return the array of a buffer specification of mpi4py; None if it has none, or only mpi4py can tell.

    Raise `ClauseError` if the array cannot be a buffer.
    """
    value = operation.named.get(parameter)
    if isinstance(value, np.ndarray) or is_device_array(value):
        return value
    if parameter == "obj":  # is pickled: how its memory lies does not matter
        return None
    what = f"MPI {operation.name}: {parameter}"
    if isinstance(value, (list, tuple)):
        if not 2 <= len(value) <= 4:  # with counts, displacements and a datatype
            raise ClauseError(f"{what} is a list of {len(value)}; give [array, counts, datatype], or the array alone")
        value = value[0]
    elif value is None and not _may_be_none(operation, parameter):
        raise ClauseError(f"{what} is None; give an array, or [None, 0, datatype] if there are no elements")
    if value is None or value is MPI.IN_PLACE or value is MPI.BOTTOM:
        return None
    if isinstance(value, np.ndarray) or is_device_array(value):
        return value
    if has_depend and hasattr(value, "__dlpack__"):  # of a device that offload does not know
        return None
    raise ClauseError(
        f"{what} is {_told(value)}, not an array; give an array, or for a tensor of another library give depend= too"
    )


def check_unknown(operation: Operation) -> None:
    """Raise `ClauseError` if a method whose buffers are not known gets an array that it cannot take."""
    is_of_mpi = isinstance(getattr(operation.method, "__self__", None), (MPI.Comm, MPI.Win, MPI.File, MPI.Message))
    for name, value in (*enumerate(operation.args), *operation.kwargs.items()):
        array = value[0] if isinstance(value, (list, tuple)) and value else value
        what = f"MPI {operation.name}: argument {name} is "
        if is_device_array(array):
            raise ClauseError(
                f"{what}a device array, but offload does not know whether this method accepts device arrays; pass a "
                "host array, or call a method of a communicator, which offload knows"
            )
        if is_of_mpi and isinstance(array, np.ndarray) and not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise ClauseError(
                f"{what}{label(array)} with strides {array.strides}, but this method takes only contiguous arrays; "
                "pass one, and copy the elements from or to the view"
            )


def is_used(operation: Operation, parameter: str) -> bool:
    """Tell whether a call on this rank reads or writes a buffer."""
    comm, known, named = operation.comm, operation.known, operation.named
    if known is None or comm is None:
        return True
    if known.sends or known.receives:
        peers = _PEERS.get(parameter, ("dest", "source"))
        return any(named.get(peer) != MPI.PROC_NULL for peer in peers if peer in known.all_names)
    if operation.name not in ROOTED:
        return True
    root = named.get("root", 0)  # between two groups: `MPI.ROOT`, `MPI.PROC_NULL`, or a rank of the other group
    if comm.is_inter and root == MPI.PROC_NULL:
        return False
    return parameter != ROOTED[operation.name] or is_root(operation)


def is_root(operation: Operation) -> bool:
    """Tell whether this rank is the root of a collective operation."""
    comm, root = operation.comm, operation.named.get("root", 0)
    return comm is not None and bool(root == (MPI.ROOT if comm.is_inter else comm.rank))


def is_written(operation: Operation, parameter: str, access: BufferAccess) -> bool:
    """Tell whether a call on this rank writes a buffer."""
    if access is BufferAccess.READ or not is_used(operation, parameter):
        return False
    return operation.name != "Ibcast" or not is_root(operation)


def is_in_place(operation: Operation) -> bool:
    """Tell whether a collective operation reads its receive buffer, as there is nothing that it is to send."""
    named = operation.named
    return "sendbuf" in named and (named["sendbuf"] is MPI.IN_PLACE or named["sendbuf"] is None)


def _may_be_none(operation: Operation, parameter: str) -> bool:
    """Tell whether mpi4py takes None for a buffer: where it is not used, or for `MPI.IN_PLACE`."""
    comm, known = operation.comm, operation.known
    if known is None or comm is None or not is_used(operation, parameter):
        return True
    if known.sends or known.receives:
        return False
    if comm.is_inter or operation.name.startswith("Ineighbor"):
        return True  # mpi4py says it
    # `MPI.IN_PLACE` takes the place of the root's receive buffer in a scatter, of the send buffer elsewhere.
    in_place = "recvbuf" if operation.name.startswith("Iscatter") else "sendbuf"
    return parameter == in_place and (operation.name not in ROOTED or is_root(operation))


def buffers_of(operation: Operation) -> tuple[list[Any], list[Any]]:
    """Return the arrays that a call on this rank reads, and those that it writes: the parts with elements of messages.

    A buffer whose parts only MPI can tell is left out.
    """
    reads, writes = [], []
    for parameter, access in operation.known.buffers if operation.known is not None else ():
        if parameter not in operation.named or not is_used(operation, parameter):
            continue
        parts = _parts_of(operation, parameter)
        if access is not BufferAccess.WRITE or (parameter == "recvbuf" and is_in_place(operation)):
            reads += parts
        if is_written(operation, parameter, access):
            writes += parts
    return reads, writes


def _parts_of(operation: Operation, parameter: str) -> list[Any]:
    """Return the parts of a buffer's array by its counts and displacements."""
    array, value = array_of(operation, parameter, has_depend=True), operation.named[parameter]
    if array is None:
        return []
    if not isinstance(value, (list, tuple)):
        return [array]
    if _has_made_datatype(value) or not array.flags.c_contiguous:
        return []
    numbers = [part for part in value[1:] if part is not None and not isinstance(part, (str, MPI.Datatype))]
    if len(numbers) == 1 and isinstance(numbers[0], (list, tuple)) and any(map(_is_sequence, numbers[0])):
        numbers = [*numbers[0]]
    if not numbers:
        return [array]
    flat, counts = array.reshape(-1), numbers[0]
    if _is_integer(counts):
        return [flat[: index(counts)]] if operation.name in _OF_ONE_MESSAGE else [array]
    each = [index(count) for count in counts]
    starts = [sum(each[:k]) for k in range(len(each))] if len(numbers) < 2 else [index(start) for start in numbers[1]]
    return [flat[start : start + count] for start, count in zip(starts, each, strict=False) if count]


_OF_ONE_MESSAGE = frozenset({"Isend", "Issend", "Ibsend", "Irsend", "Irecv", "Ibcast"})


def _is_sequence(value: Any) -> bool:
    return hasattr(value, "__len__")


def is_direct(operation: Operation, parameter: str, array: np.ndarray[Any, Any]) -> bool:
    """Tell whether the library takes an array of the host itself: its elements lie in C's order, or are pickled."""
    # A datatype that the program has made describes memory, so it gets contiguous memory of Fortran's order as well.
    flags = array.flags
    if flags.c_contiguous or parameter == "obj":
        return True
    return bool(flags.f_contiguous) and _has_made_datatype(operation.named[parameter])


def _has_made_datatype(buffer: Any) -> bool:
    """Tell whether a buffer specification has a datatype other than MPI's own."""
    if isinstance(buffer, MPI.Datatype):
        return not buffer.is_predefined
    return isinstance(buffer, (list, tuple)) and any(map(_has_made_datatype, buffer))


def check_array(operation: Operation, parameter: str, array: Any, access: BufferAccess) -> None:
    """Raise `ClauseError` if a call cannot take an array of the host, or could not write it."""
    dtype, flags = array.dtype, array.flags
    is_number = dtype.char in _NUMBERS and dtype.isnative
    # The usual case ends here.
    if (is_number and flags.c_contiguous and flags.writeable) or parameter == "obj":
        return
    what = f"MPI {operation.name}: {parameter} is {label(array)}"
    if dtype.hasobject:
        raise ClauseError(f"{what}, which holds Python objects; pass numbers, or use mpi.send_object")
    if not is_number and not isinstance(operation.named[parameter], (list, tuple)) and is_used(operation, parameter):
        raise ClauseError(f"{what}, but MPI has no such number type; pass [array, MPI.BYTE], or a view as numbers")
    if not is_written(operation, parameter, access):
        return
    if not flags.writeable:
        raise ClauseError(f"{what}, which is read-only; receive into a writeable array")
    if not flags.c_contiguous and array_section(array).nbytes < array.nbytes:
        raise ClauseError(
            f"{what} with strides {array.strides}, whose elements share memory; receive into an array of its own, and "
            "copy"
        )


def _told(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.40}"
