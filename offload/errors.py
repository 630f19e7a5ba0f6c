"""The exceptions and warnings of `offload`.

Every class can be raised through the public interface and pickled. A user's own exception is never
wrapped in one of these: it arrives as it was raised, with a note that names the task.
"""

from __future__ import annotations


class OffloadError(Exception):
    """Base of every error that `offload` raises itself."""


class DirectiveError(OffloadError, ValueError):
    """A construct was written wrongly: what it asks for cannot mean anything."""


class ClauseError(DirectiveError):
    """A clause, its type, its value or a combination of clauses is not allowed."""


class LayoutError(ClauseError):
    """An array type, or a pair of them, cannot mean anything."""


class DependError(DirectiveError):
    """A ``depend`` clause is wrong, or a task did not run because one that it depends on failed.

    In the second case ``__cause__`` is the failure of the task where it began.
    """


class MapError(DirectiveError):
    """A list item cannot be mapped as asked."""


class NotPresentError(MapError, LookupError):
    """An item with the ``present`` modifier is not present on the device."""


class ExtensionError(MapError):
    """A list item is present in part only, and storage on a device cannot be extended."""


class LoopError(DirectiveError):
    """A function under a loop construct is outside of the subset, or its iterations are provably not independent.

    Attributes
    ----------
    file : str
        Where the text stands.
    line : int
        From 1.
    rule : str
        A word for the rule: ``"argument"``, ``"name"``, ``"range"``, ``"collapse"``, ``"loop"``, ``"branch"``,
        ``"index"``, ``"assign"``, ``"operator"``, ``"call"``, ``"return"``, ``"reduction"``, ``"atomic"``,
        ``"private"``, ``"local"``, ``"carried"``, ``"unbound"``, ``"types"``, ``"dependence"``, ``"source"``.
    """

    def __init__(self, message: str, file: str = "", line: int = 0, rule: str = "") -> None:
        super().__init__(message, file, line, rule)
        self.file = file
        self.line = line
        self.rule = rule

    def __str__(self) -> str:
        return str(self.args[0])


class EventError(DirectiveError):
    """An event was fulfilled twice, attached twice, or given a source that cannot fulfil it."""


class UsageError(OffloadError, RuntimeError):
    """A construct or routine was called where it must not be."""


class RuntimeClosedError(UsageError):
    """The runtime that would do this has been closed."""


class RegionClosedError(UsageError):
    """The region that this belongs to has ended."""


class LeakError(UsageError):
    """A runtime opened with ``check=True`` was closed while something of it was still mapped or allocated."""


class UnsupportedError(OffloadError, NotImplementedError):
    """A lawful request that this version, or this platform, cannot carry out."""


class DeviceError(OffloadError, RuntimeError):
    """A device could not do what was asked."""


class DeviceUnavailableError(DeviceError):
    """A device that was asked for does not exist here."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device has not enough memory.

    Attributes
    ----------
    asked_nbytes, free_nbytes : int or None
        What was asked for and what was free, in bytes; None where the device does not say.
    """

    def __init__(self, message: str, asked_nbytes: int | None = None, free_nbytes: int | None = None) -> None:
        super().__init__(message, asked_nbytes, free_nbytes)
        self.asked_nbytes = asked_nbytes
        self.free_nbytes = free_nbytes

    def __str__(self) -> str:
        return str(self.args[0])


class DeviceLostError(DeviceError):
    """Work on a device failed; nothing enqueued there after it has run, nor will run."""


class TransportError(DeviceError):
    """A transfer between processes failed. ``__cause__`` is the error of MPI, if it was one.

    Attributes
    ----------
    error_class : int or None
        The class of MPI's error; None where MPI has not failed.
    error_name : str
        What the standard calls that class, as ``"MPI_ERR_TRUNCATE"``.
    operation : str
        What failed.
    """

    def __init__(self, message: str, error_class: int | None = None, error_name: str = "", operation: str = "") -> None:
        super().__init__(message, error_class, error_name, operation)
        self.error_class = error_class
        self.error_name = error_name
        self.operation = operation

    def __str__(self) -> str:
        return str(self.args[0])


class InternalError(OffloadError):
    """An invariant of `offload` itself does not hold. Please report it."""


class OffloadWarning(UserWarning):
    """Base of the warnings that `offload` gives."""


class CleanupWarning(OffloadWarning):
    """Something was left over, or went wrong, where nothing can be raised any more.

    It is no `ResourceWarning`, which Python hides unless it is asked to show them.
    """


class HostFallbackWarning(OffloadWarning):
    """A target region runs on the host because there is no device."""


class DirectiveWarning(OffloadWarning):
    """A construct means something, but hardly what its words make one expect."""


class PerformanceWarning(OffloadWarning):
    """What was asked for gives right results, but slowly; the message says what makes it quick."""


class SpeculationWarning(OffloadWarning):
    """A loop that was profiled as probably parallel has turned out dependent; its results are right all the same."""
