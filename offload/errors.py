"""The exceptions and warnings of `offload`.

You can raise and pickle every class. offload never wraps your own exceptions in one of these classes: your exception
arrives as you raised it, with a note that names the task.
"""

from __future__ import annotations

from typing import Any


class OffloadError(Exception):
    """Base of every error that `offload` raises itself.

    Examples
    --------
    >>> try:
    ...     omp.device(9)
    ... except omp.OffloadError as error:
    ...     print("use the host instead:", type(error).__name__)
    use the host instead: ClauseError
    """


class DirectiveError(OffloadError, ValueError):
    """Base of the errors in a construct, its clauses or its arguments.

    Examples
    --------
    >>> try:
    ...     omp.target_enter_data(map=[omp.to(np.ones(3))], device=9)
    ... except omp.DirectiveError as error:
    ...     print(type(error).__name__)
    ClauseError
    """


class ClauseError(DirectiveError):
    """A clause, its type, its value or a combination of clauses is not allowed.

    Examples
    --------
    >>> x = np.ones(3)
    >>> omp.target_enter_data(map=[omp.to(x)], device=9)
    Traceback (most recent call last):
        ...
    offload.errors.ClauseError: ...
    """


class UnknownClauseError(ClauseError, TypeError):
    """A call has a keyword that the construct does not take; a `TypeError` too, as for any Python function.

    Examples
    --------
    >>> omp.taskwait(dependence=[])
    Traceback (most recent call last):
        ...
    offload.errors.UnknownClauseError: ...
    """


class LayoutError(ClauseError):
    """An array type has a wrong tree, or a pair of types does not fit.

    Examples
    --------
    >>> parray.plan(parray.ArrayType([2, 3]), parray.ArrayType([2, 4]))
    Traceback (most recent call last):
        ...
    offload.errors.LayoutError: ...
    """


class DependError(DirectiveError):
    """A ``depend`` clause is wrong, or a task did not run because a task that it depends on failed.

    In the second case ``__cause__`` is the exception of the task that failed first.

    Examples
    --------
    >>> divide = omp.task(lambda x: x / 0)
    >>> show = omp.task(print)
    >>> failed = divide(1)
    >>> later = show(failed)
    >>> later.exception()
    DependError(...)
    >>> failed.exception()
    ZeroDivisionError('division by zero')
    """


class MapError(DirectiveError):
    """An item cannot be mapped with this map type.

    Examples
    --------
    >>> x = np.ones(3)
    >>> x.flags.writeable = False
    >>> with omp.target_data(map=[omp.tofrom(x)]):
    ...     pass
    Traceback (most recent call last):
        ...
    offload.errors.MapError: ...
    """


class NotPresentError(MapError, LookupError):
    """An item with the ``present`` modifier is not present on the device.

    Examples
    --------
    >>> x = np.ones(3)
    >>> with omp.target_data(map=[omp.to(x, present=True)]):
    ...     pass
    Traceback (most recent call last):
        ...
    offload.errors.NotPresentError: ...
    """


class ExtensionError(MapError):
    """A part of a list item is already present, and storage on a device cannot grow.

    Examples
    --------
    >>> x = np.ones(10)
    >>> with omp.target_data(map=[omp.to(x[:5])]):
    ...     omp.target_enter_data(map=[omp.to(x)])
    Traceback (most recent call last):
        ...
    offload.errors.ExtensionError: ...
    """


class LoopError(DirectiveError):
    """A loop function is outside of the subset, or its iterations provably depend on each other.

    Attributes
    ----------
    file : str
        The file that contains the line.
    line : int
        The line number, from 1.
    rule : str
        The rule that the line breaks: ``"argument"``, ``"name"``, ``"range"``, ``"collapse"``, ``"loop"``,
        ``"branch"``, ``"index"``, ``"assign"``, ``"operator"``, ``"call"``, ``"return"``, ``"reduction"``,
        ``"atomic"``, ``"private"``, ``"local"``, ``"carried"``, ``"unbound"``, ``"types"``, ``"dependence"`` or
        ``"source"``.

    Examples
    --------
    >>> @omp.target_loop
    ... def prefix(a):
    ...     for i in range(1, a.size):
    ...         a[i] += a[i - 1]
    >>> try:
    ...     prefix(np.ones(10))
    ... except omp.LoopError as error:
    ...     print(error.rule)
    dependence
    """

    def __init__(self, message: str, file: str = "", line: int = 0, rule: str = "") -> None:
        super().__init__(message, file, line, rule)
        self.file = file
        self.line = line
        self.rule = rule

    def __str__(self) -> str:
        return str(self.args[0])


class EventError(DirectiveError):
    """An event was fulfilled twice, attached twice, or given a source that cannot fulfil it.

    Examples
    --------
    >>> event = omp.Event()
    >>> event.fulfill()
    >>> event.fulfill()
    Traceback (most recent call last):
        ...
    offload.errors.EventError: ...
    """


class UsageError(OffloadError, RuntimeError):
    """A construct or routine was called at a place where it is not allowed.

    Examples
    --------
    >>> @omp.target
    ... def body(x):
    ...     omp.taskwait()  # a target body cannot wait
    >>> body(np.ones(3))
    Traceback (most recent call last):
        ...
    offload.errors.UsageError: ...
    """


class RuntimeClosedError(UsageError):
    """The runtime has been closed.

    Examples
    --------
    >>> runtime = omp.Runtime("sim:1")
    >>> runtime.close()
    >>> runtime.devices()
    Traceback (most recent call last):
        ...
    offload.errors.RuntimeClosedError: ...
    """


class RegionClosedError(UsageError):
    """A device array, region or block is used after its end.

    Examples
    --------
    >>> d = omp.target_alloc(10)
    >>> omp.target_free(d)
    >>> omp.target_memset(d, 0)
    Traceback (most recent call last):
        ...
    offload.errors.RegionClosedError: ...
    """


class LeakError(UsageError):
    """A runtime with ``check=True`` was closed while data was still mapped or allocated.

    Examples
    --------
    >>> x = np.ones(3)
    >>> with omp.Runtime("sim:1", check=True):
    ...     omp.target_enter_data(map=[omp.to(x)])  # no target_exit_data follows
    Traceback (most recent call last):
        ...
    offload.errors.LeakError: ...
    """


class SanitizerError(UsageError):
    """A runtime with ``sanitize="error"`` has ended, and its sanitizer has findings.

    Attributes
    ----------
    findings : tuple of offload.sanitizer.Finding
        The findings.

    Examples
    --------
    >>> from offload.sanitizer import numpy as np
    >>> x = np.ones(3)
    >>> with omp.Runtime("sim:1", sanitize="error"):
    ...     omp.target(map=[omp.to("x")])(lambda x: x.fill(2))(x)
    ...     total = x.sum()  # the device's values have not been copied back
    Traceback (most recent call last):
        ...
    offload.errors.SanitizerError: ...
    """

    findings: tuple[Any, ...]

    def __init__(self, *args: object, findings: tuple[Any, ...] = ()) -> None:
        super().__init__(*args)
        self.findings = findings


class UnsupportedError(OffloadError, NotImplementedError):
    """A valid request that this version, or this platform, cannot carry out.

    Examples
    --------
    >>> omp.cancel("parallel")
    Traceback (most recent call last):
        ...
    offload.errors.UnsupportedError: ...
    """


class PragmaError(ClauseError, SyntaxError):
    """A directive string is wrong, or a block with a directive cannot be taken.

    It has the attributes of a `SyntaxError`, and ``text[offset - 1 : end_offset - 1]`` is the offending token. Under
    `directives`, ``text`` is the line of the source file. For a string that `omp` or `acc` receives directly, ``text``
    is the line of the string, and ``filename`` is ``"<directive>"``.

    Examples
    --------
    >>> from offload.pragma import omp as pragma
    >>> try:
    ...     pragma("taskwait dpend(in: x)")
    ... except omp.PragmaError as error:
    ...     print(error.text[error.offset - 1 : error.end_offset - 1])
    dpend
    """

    span: Any = None  # of the token in the directive's string: `offload.pragma.syntax.Span`

    def __init__(
        self,
        message: str,
        filename: str = "<directive>",
        lineno: int = 1,
        offset: int = 1,
        text: str = "",
        end_lineno: int | None = None,
        end_offset: int | None = None,
    ) -> None:
        # `ClauseError` stands first among the bases; its `__init__` knows nothing of lines.
        SyntaxError.__init__(
            self, message, (filename, lineno, offset, text, end_lineno or lineno, end_offset or offset)
        )

    __str__ = SyntaxError.__str__

    def __reduce__(self) -> tuple[object, ...]:
        place = self.filename, self.lineno, self.offset, self.text, self.end_lineno, self.end_offset
        return type(self), (self.msg, *place), self.__dict__


class UnsupportedPragmaError(PragmaError, UnsupportedError):
    """A directive string has a directive or a clause that OpenMP or OpenACC knows, but `offload` does not support.

    Examples
    --------
    >>> from offload.pragma import omp as pragma
    >>> try:
    ...     pragma("threadprivate(x)")
    ... except omp.UnsupportedError as error:
    ...     print(isinstance(error, omp.PragmaError))
    True
    """


class DeviceError(OffloadError, RuntimeError):
    """Base of the errors of devices.

    Examples
    --------
    >>> with omp.Runtime("sim:1", env={"OFFLOAD_SIM_MEMORY": "1M"}):
    ...     try:
    ...         d = omp.target_alloc(1 << 30)
    ...     except omp.DeviceError as error:
    ...         print(type(error).__name__)
    DeviceMemoryError
    """


class DeviceUnavailableError(DeviceError):
    """A device does not exist on this machine.

    Examples
    --------
    >>> omp.Runtime("cuda:99")
    Traceback (most recent call last):
        ...
    offload.errors.DeviceUnavailableError: ...
    """


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has too little memory.

    Attributes
    ----------
    asked_nbytes, free_nbytes : int or None
        Requested and free memory in bytes; None if the device does not report it.

    Examples
    --------
    >>> with omp.Runtime("sim:1", env={"OFFLOAD_SIM_MEMORY": "1M"}):
    ...     try:
    ...         d = omp.target_alloc(1 << 30)
    ...     except omp.DeviceMemoryError as error:
    ...         print(error.asked_nbytes, error.free_nbytes)
    1073741824 1048576
    """

    def __init__(self, message: str, asked_nbytes: int | None = None, free_nbytes: int | None = None) -> None:
        super().__init__(message, asked_nbytes, free_nbytes)
        self.asked_nbytes = asked_nbytes
        self.free_nbytes = free_nbytes

    def __str__(self) -> str:
        return str(self.args[0])


class DeviceLostError(DeviceError):
    """Work on a device failed, or its worker in a Dask cluster is gone; later work on this device does not run.

    Attributes
    ----------
    device_num : int or None
        The number of the device; None if it is not known.
    worker : str
        The address of the worker that was lost; empty for a device of this process.
    lost : tuple of str
        The labels of the data that was on the worker.

    Examples
    --------
    >>> with omp.Runtime("sim:1"):
    ...     omp.stream().launch(lambda: 1 / 0)  # library code that fails on the device
    ...     omp.device(0).synchronize()
    Traceback (most recent call last):
        ...
    offload.errors.DeviceLostError: ...
    """

    def __init__(
        self, message: str = "", device_num: int | None = None, worker: str = "", lost: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message, device_num, worker, lost)
        self.device_num = device_num
        self.worker = worker
        self.lost = lost

    def __str__(self) -> str:
        return str(self.args[0])


class TransportError(DeviceError):
    """A transfer between processes failed. ``__cause__`` is MPI's own error, if MPI reported one.

    Attributes
    ----------
    error_class : int or None
        The class of MPI's error; None if MPI itself has not failed.
    error_name : str
        MPI's name of the class, for example ``"MPI_ERR_TRUNCATE"``.
    operation : str
        The operation that failed.

    Examples
    --------
    The buffer of this receive is too short for the message:

    >>> receive = mpi.irecv(np.zeros(1), 0, 5)
    >>> send = mpi.isend(np.zeros(3), 0, 5)
    >>> receive.exception().error_name
    'MPI_ERR_TRUNCATE'
    """

    def __init__(self, message: str, error_class: int | None = None, error_name: str = "", operation: str = "") -> None:
        super().__init__(message, error_class, error_name, operation)
        self.error_class = error_class
        self.error_name = error_name
        self.operation = operation

    def __str__(self) -> str:
        return str(self.args[0])


class InternalError(OffloadError):
    """offload found that its own state is inconsistent. Please report it.

    Examples
    --------
    >>> with omp.record() as graph:
    ...     omp.task(print)("hello").result()
    hello
    >>> graph.add_node(graph.tasks[0])  # a private method: only recordings add nodes
    Traceback (most recent call last):
        ...
    offload.errors.InternalError: ...
    """


class OffloadWarning(UserWarning):
    """Base of the warnings that `offload` issues.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", omp.OffloadWarning)
    ...     omp.target(lambda parts: None)([np.ones(3)])  # would issue a DirectiveWarning
    """


class CleanupWarning(OffloadWarning):
    """Data was left over, or an error occurred, at a place where offload cannot raise an exception.

    It does not derive from `ResourceWarning`, because Python hides that class by default.

    Examples
    --------
    >>> import warnings
    >>> x = np.ones(3)
    >>> with warnings.catch_warnings(record=True) as caught, omp.Runtime("sim:1"):
    ...     warnings.simplefilter("always")
    ...     omp.target_enter_data(map=[omp.to(x)])  # no target_exit_data follows
    >>> caught[0].category.__name__
    'CleanupWarning'
    """


class HostFallbackWarning(OffloadWarning):
    """A target region runs on the host because there is no device.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught, omp.Runtime("none"):
    ...     warnings.simplefilter("always")
    ...     omp.target(lambda x: None)(np.ones(3))
    >>> caught[0].category.__name__
    'HostFallbackWarning'
    """


class DirectiveWarning(OffloadWarning):
    """A construct is allowed, and probably does something else than you expect.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     omp.target(lambda parts: None)([np.ones(3)])  # arrays in a list are not mapped
    >>> caught[0].category.__name__
    'DirectiveWarning'
    """


class PerformanceWarning(OffloadWarning):
    """The results are correct, but the program is slow; the message names the remedy.

    Examples
    --------
    >>> import warnings
    >>> @acc.kernels_loop
    ... def scatter(p, y):
    ...     for i in range(p.size):
    ...         y[p[i]] = i  # two elements of p could be equal
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     scatter(np.arange(10), np.zeros(10))
    >>> caught[0].category.__name__
    'PerformanceWarning'
    """


class SpeculationWarning(OffloadWarning):
    """Iterations of a loop that seemed parallel depend on each other; the results are correct.

    From this call on, the loop runs sequentially.

    Examples
    --------
    >>> import warnings
    >>> @omp.target_loop(speculate=True)
    ... def update(p, y):
    ...     for i in range(p.size):
    ...         y[p[i]] = 0.5 * y[p[i]] + 1
    >>> p, y = np.arange(1000), np.zeros(1000)
    >>> with omp.target_data(map=[omp.to(p), y]):
    ...     for call in range(5):
    ...         update(p, y)
    >>> p[7] = p[900]  # now two iterations update the same element
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     for call in range(3):
    ...         update(p, y)
    >>> caught[0].category.__name__
    'SpeculationWarning'
    """
