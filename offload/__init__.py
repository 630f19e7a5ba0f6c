"""OpenMP's offload and tasking semantics as a Python library.

``import offload as omp``: constructs and routines carry OpenMP's names without ``omp_``.

Three names are constants. `initial_device` (-1) is a device number of the host. `invalid_device` (-2) is a device
number that never exists. `all_memory` is a list item for `out` and `inout`. It orders a task with all tasks that have
dependences. The module `atomic` has atomic updates of array elements.

The examples of all docstrings assume these lines::

    import numpy as np
    import offload as omp
    from offload import acc, mpi, parray

Examples
--------
>>> @omp.target
... def scale(a, x):
...     x *= a  # x is a device array
>>> x = np.ones(3)
>>> scale(2.0, x)
>>> x
array([2., 2., 2.])

A device number of -1 selects the host:

>>> omp.device(omp.initial_device).kind, omp.target(omp.get_device_num).options(device=-1)()
('host', 1)
>>> omp.device(omp.invalid_device)
Traceback (most recent call last):
    ...
offload.errors.ClauseError: ...
"""

from offload import atomic
from offload.arrays.items import all_memory, section
from offload.constructs.allocators import use_allocator
from offload.constructs.arraycopy import copy
from offload.constructs.associations import target_associate_ptr, target_disassociate_ptr
from offload.constructs.buffers import buffers
from offload.constructs.cancelling import cancel, cancellation_point
from offload.constructs.clauses.dependences import depobj, in_, inout, inoutset, mutexinoutset, out
from offload.constructs.clauses.mappers import declare_mapper
from offload.constructs.clauses.maps import alloc, delete, from_, release, to, tofrom
from offload.constructs.clauses.operators import declare_reduction
from offload.constructs.data import target_data, target_enter_data, target_exit_data
from offload.constructs.groups import taskgroup
from offload.constructs.hostmemory import empty_pinned
from offload.constructs.interop import Interop, interop
from offload.constructs.memory import (
    get_mapped_ptr,
    target_alloc,
    target_free,
    target_is_accessible,
    target_is_present,
    target_memcpy,
    target_memcpy_async,
    target_memcpy_rect,
    target_memcpy_rect_async,
    target_memset,
    target_memset_async,
)
from offload.constructs.routines import (
    array_namespace,
    current_stream,
    current_task,
    device,
    devices,
    display_env,
    get_default_device,
    get_device_num,
    get_initial_device,
    get_max_task_priority,
    get_num_devices,
    in_explicit_task,
    in_final,
    is_initial_device,
    set_default_device,
    set_stream,
    stream,
)
from offload.constructs.target import target
from offload.constructs.task import task
from offload.constructs.taskgraph import taskgraph
from offload.constructs.taskloop import taskloop
from offload.constructs.update import target_update
from offload.constructs.waiting import barrier, taskwait, taskyield
from offload.errors import (
    ClauseError,
    CleanupWarning,
    DependError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceUnavailableError,
    DirectiveError,
    DirectiveWarning,
    EventError,
    ExtensionError,
    HostFallbackWarning,
    InternalError,
    LayoutError,
    LeakError,
    LoopError,
    MapError,
    NotPresentError,
    OffloadError,
    OffloadWarning,
    PerformanceWarning,
    PragmaError,
    RegionClosedError,
    RuntimeClosedError,
    SanitizerError,
    SpeculationWarning,
    TransportError,
    UnknownClauseError,
    UnsupportedError,
    UnsupportedPragmaError,
    UsageError,
)
from offload.events.event import Event, fulfill_event
from offload.graphs.recording import record
from offload.graphs.taskgraph import TaskGraph
from offload.loops.functions import target_loop
from offload.loops.host_functions import parallel_loop
from offload.loops.profile import profile_dependences
from offload.loops.proofs.dependences import DependenceProfile
from offload.loops.words import declare_target, loop
from offload.runtime.current import current_runtime
from offload.runtime.live import progress
from offload.runtime.observing import tool
from offload.runtime.place import initial_device, invalid_device
from offload.runtime.runtime import Runtime
from offload.tasks.task import Task

__version__ = "0.1.0"

__all__ = [
    "ClauseError",
    "CleanupWarning",
    "DependError",
    "DependenceProfile",
    "DeviceError",
    "DeviceLostError",
    "DeviceMemoryError",
    "DeviceUnavailableError",
    "DirectiveError",
    "DirectiveWarning",
    "Event",
    "EventError",
    "ExtensionError",
    "HostFallbackWarning",
    "InternalError",
    "Interop",
    "LayoutError",
    "LeakError",
    "LoopError",
    "MapError",
    "NotPresentError",
    "OffloadError",
    "OffloadWarning",
    "PerformanceWarning",
    "PragmaError",
    "RegionClosedError",
    "Runtime",
    "RuntimeClosedError",
    "SanitizerError",
    "SpeculationWarning",
    "Task",
    "TaskGraph",
    "TransportError",
    "UnknownClauseError",
    "UnsupportedError",
    "UnsupportedPragmaError",
    "UsageError",
    "all_memory",
    "alloc",
    "array_namespace",
    "atomic",
    "barrier",
    "buffers",
    "cancel",
    "cancellation_point",
    "copy",
    "current_runtime",
    "current_stream",
    "current_task",
    "declare_mapper",
    "declare_reduction",
    "declare_target",
    "delete",
    "depobj",
    "device",
    "devices",
    "display_env",
    "empty_pinned",
    "from_",
    "fulfill_event",
    "get_default_device",
    "get_device_num",
    "get_initial_device",
    "get_mapped_ptr",
    "get_max_task_priority",
    "get_num_devices",
    "in_",
    "in_explicit_task",
    "in_final",
    "initial_device",
    "inout",
    "inoutset",
    "interop",
    "invalid_device",
    "is_initial_device",
    "loop",
    "mutexinoutset",
    "out",
    "parallel_loop",
    "profile_dependences",
    "progress",
    "record",
    "release",
    "section",
    "set_default_device",
    "set_stream",
    "stream",
    "target",
    "target_alloc",
    "target_associate_ptr",
    "target_data",
    "target_disassociate_ptr",
    "target_enter_data",
    "target_exit_data",
    "target_free",
    "target_is_accessible",
    "target_is_present",
    "target_loop",
    "target_memcpy",
    "target_memcpy_async",
    "target_memcpy_rect",
    "target_memcpy_rect_async",
    "target_memset",
    "target_memset_async",
    "target_update",
    "task",
    "taskgraph",
    "taskgroup",
    "taskloop",
    "taskwait",
    "taskyield",
    "to",
    "tofrom",
    "tool",
    "use_allocator",
]
