"""Device arrays for the time of a block, used in turn: `buffers`."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from offload.constructs.groups import GroupRegion
from offload.constructs.memory import allocate, give_back
from offload.errors import ClauseError, RegionClosedError, UsageError
from offload.interrupts.finalizers import refuse_inside
from offload.interrupts.shields import Shield, in_one_piece, late
from offload.runtime.current import encounter, for_finalizers
from offload.runtime.keywords import takes_clauses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

_END = "the end of buffers"


class Buffers:
    """The result of `buffers`: a context manager, used once, and in its block the ring of device arrays itself."""

    __slots__ = ("_arrays", "_asked", "_n", "_region", "_runtime")

    def __init__(self, n: int, asked: tuple[Any, Any, int | None]) -> None:
        self._n = n  # of the ring
        self._asked = asked  # shape, dtype and device of each
        self._arrays: list[Any] = []  # empty outside of the block
        self._region: GroupRegion | None = None  # waits at the end for the tasks that use them
        self._runtime: Any = None

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: int) -> Any:
        """Return the array at ``i`` modulo the number of arrays, of any sign."""
        try:
            number = index(i)
        except TypeError:
            raise ClauseError(f"buffers: {i!r:.60} is not a buffer number; use an int") from None
        return self._live()[number % self._n]

    def __iter__(self) -> Iterator[Any]:
        """Yield each array once."""
        return iter(tuple(self._live()))

    def __repr__(self) -> str:
        shape, dtype, _ = self._asked
        return f"<buffers {self._n} of {dtype!r:.60}{shape!r:.60}>"

    def _live(self) -> list[Any]:
        if not self._arrays:
            if self._runtime is None:
                raise UsageError("buffers: arrays exist only in the block; write `with omp.buffers(…) as ring:`")
            raise RegionClosedError("buffers: the block has ended, and its arrays are freed; use them inside the block")
        return self._arrays

    # -- the block -----------------------------------------------------------------------------------
    def __enter__(self) -> Self:
        refuse_inside("buffers")
        if self._runtime is not None:
            raise UsageError("buffers can be entered once only; call buffers() again for each block")
        scope, frame = encounter("buffers")
        self._runtime = scope.runtime
        try:
            with Shield():
                for _ in range(self._n):
                    self._arrays.append(allocate(*self._asked, "buffers"))
                self._region = GroupRegion(scope, frame, _END, is_implicit=True)
        except BaseException:
            if self._region is not None:  # an interruption
                self._region.leave_block()
            self._free(is_over=True)
            raise
        return self

    @in_one_piece
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._region is not None, "entered"
        try:
            self._region.leave_block()
            self._exit(self._region, error)
        finally:
            if late.is_due:
                late.deliver()

    @for_finalizers
    def _exit(self, region: GroupRegion, error: BaseException | None) -> None:
        with Shield():
            try:
                region.end()
            except BaseException as later:
                if error is None:
                    raise
                _note(error, later)
            finally:
                self._free(is_over=not region.group.live)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        region = self._region
        assert region is not None, "entered"
        try:
            await region.finish()
        except BaseException as later:
            if error is None or not isinstance(later, (Exception, BaseExceptionGroup)):
                raise  # a cancellation of the coroutine must not get lost
            _note(error, later)
        finally:
            self._free(is_over=not region.group.live)

    def _free(self, *, is_over: bool) -> None:
        """Give the arrays back.

        If the wait was interrupted, tasks are still running. Their arrays stay valid, and the memory goes back with the
        last task that holds one.
        """
        arrays, self._arrays = self._arrays, []
        for array in arrays:
            give_back(self._runtime, array, _END if is_over else "")


def _note(error: BaseException, later: BaseException) -> None:
    if later is not error:
        error.add_note(f"then, at {_END}: {later!r}")


@takes_clauses
def buffers(n: int, shape: int | tuple[int, ...], dtype: Any = float, device: int | None = None) -> Buffers:
    """Allocate device arrays for the duration of a block, to be used in turn.

    The end of the block waits for the tasks generated in it, and for their descendants, and then frees the arrays. If
    the block raises, its end does the same; the exception goes on, with later failures as notes.

    Parameters
    ----------
    n : int
        The number of arrays, at least 1.
    shape : int or tuple of int
        The number of elements of each dimension.
    dtype : dtype-like
        Any dtype without Python objects.
    device : int, optional
        Device number; defaults to the default device. Pass the host's number to get NumPy arrays.

    Returns
    -------
    context manager
        For ``with``; in a coroutine for ``async with``, which lets the event loop run at the end. It gives the ring:
        ``ring[i]`` is array ``i % n``, the same object each time, ``len(ring)`` is ``n``, and iteration yields each
        array once. The arrays are uninitialised arrays of `target_alloc`. Use them in ``depend``, as arguments and in
        memory routines. You may free one earlier with `target_free`. As with `taskgroup`, the block belongs to the
        coroutine or generator that enters it.

    Raises
    ------
    ClauseError
        A wrong number, shape, dtype or device.
    DeviceMemoryError
        At the entry: the device has too little memory. Nothing is allocated.
    UnsupportedError
        At the entry: the device has no arrays of this dtype.
    ExceptionGroup
        At the end: tasks generated in the block failed, and their failures have not been retrieved.
    RegionClosedError
        The ring, or an array of it, is used after the block.

    Notes
    -----
    The end of the block blocks. As for other arrays, only dependences order the uses of a buffer. The block does not
    wait for tasks generated outside of it, nor for work that you enqueue on a stream yourself. Call a `taskgraph` that
    uses the arrays inside of the block. A `buffers` block in the body of a taskgraph would free arrays that replays
    use. The block is an implicit taskgroup with `target_alloc` and `target_free`: OpenMP 5.2, 15.4 "taskgroup
    Construct", 18.8.1 "omp_target_alloc" (section numbers unchecked).

    Examples
    --------
    >>> x = np.arange(8.0)
    >>> with omp.buffers(2, 2) as ring:  # two device arrays of two elements
    ...     for i in range(4):
    ...         part, buffer = x[2 * i : 2 * i + 2], ring[i]
    ...         first = omp.copy(buffer, part, depend=[omp.out(buffer)], nowait=True)
    ...         second = omp.copy(part[::-1], buffer, depend=[omp.in_(buffer)], nowait=True)
    >>> x
    array([1., 0., 3., 2., 5., 4., 7., 6.])
    """
    try:
        count = index(n)
    except TypeError:
        count = 0
    if count < 1:
        raise ClauseError(f"buffers: n={n!r:.60} is not a number of buffers; use an int of at least 1")
    return Buffers(count, (shape, dtype, device))
