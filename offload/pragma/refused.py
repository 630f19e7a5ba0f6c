"""The directives and clauses of OpenMP 6.0 and OpenACC 3.3 that offload does not support, with what to write instead.

`tables` has the rest. A word of either standard is therefore never reported as a typo.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.pragma.syntax import Language

_OUT: Final = "leave it out"
_ONE_THREAD: Final = "a team has one thread, so leave it out and update the variable itself"
_LAST: Final = "leave it out, and assign the variable after the construct"

CLAUSE_REMEDIES: Final[Mapping[Language, Mapping[tuple[str, str], str]]] = MappingProxyType(
    {
        "omp": MappingProxyType(
            {
                ("", "affinity"): _OUT,
                ("", "allocate"): "leave it out, or use offload.use_allocator",
                ("", "copyin"): "write firstprivate",
                ("", "default"): "write defaultmap",
                ("", "detach"): "write it on a task",
                ("", "device_type"): _OUT,
                ("", "fail"): _OUT,
                ("", "firstprivate"): "write it on a task or a target",
                ("", "in_reduction"): "write it on a task",
                ("", "init"): "write depobj(o) depend(…)",
                ("", "lastprivate"): _LAST,
                ("", "linear"): "compute the value from the loop variable",
                ("", "memscope"): _OUT,
                ("", "mergeable"): _OUT,
                ("", "message"): _OUT,
                ("", "nowait"): "leave it out, or write depend on the tasks themselves",
                ("", "ordered"): "write tasks with depend, or do the ordered part in a loop of its own",
                ("", "priority"): "write it on a task or a target",
                ("", "private"): "write it on a task or a target",
                ("", "reduction"): _ONE_THREAD,
                ("", "replayable"): "leave it out; a taskgraph replays all of its tasks",
                ("", "safesync"): _OUT,
                ("", "severity"): _OUT,
                ("", "shared"): "leave it out; the block stays in the function",
                ("", "thread_limit"): "write a loop: target teams distribute parallel for thread_limit(…)",
                ("", "threadset"): _OUT,
                ("", "transparent"): _OUT,
                ("", "uses_allocators"): "leave it out, or use offload.use_allocator",
                ("taskloop", "collapse"): "write one loop over the pairs of indices, such as itertools.product",
                ("sections", "private"): "use tasks, which take private, in a taskgroup",
                ("sections", "firstprivate"): "use tasks, which take firstprivate, in a taskgroup",
                ("sections", "reduction"): "use taskgroup task_reduction(…) with task in_reduction(…)",
                ("target data", "default"): _OUT,
            }
        ),
        "acc": MappingProxyType({("", "device_type"): "leave it out; every device gets the same clauses"}),
    }
)
"""By directive and clause; the directive is empty if the remedy is the same for all."""

_NESTED: Final = "write taskloop, if need be inside of parallel and masked"
_VARIANTS: Final = "choose with Python's if"
_SYNTHETIC: Final = "leave it out; loop functions choose the order and shape of their loops"
_TARGETS: Final = "use offload.declare_target"
_ASSUME: Final = "leave it out; use assert for what must hold"
_FORTRAN_DO: Final = "write for"

DIRECTIVE_REMEDIES: Final[Mapping[Language, Mapping[str, str]]] = MappingProxyType(
    {
        "omp": MappingProxyType(
            {
                "allocate": "use offload.empty_pinned or offload.use_allocator",
                "allocators": "use offload.use_allocator",
                "assume": _ASSUME,
                "assumes": _ASSUME,
                "begin assumes": _ASSUME,
                "begin declare target": _TARGETS,
                "begin declare variant": _VARIANTS,
                "begin declare_target": _TARGETS,
                "begin declare_variant": _VARIANTS,
                "begin metadirective": _VARIANTS,
                "cancel do": "write cancel taskgroup, or leave the loop with a flag",
                "cancel for": "write cancel taskgroup, or leave the loop with a flag",
                "cancel parallel": "write cancel taskgroup",
                "cancel sections": "write cancel taskgroup",
                "cancellation point do": "write cancellation point taskgroup",
                "cancellation point for": "write cancellation point taskgroup",
                "cancellation point parallel": "write cancellation point taskgroup",
                "cancellation point sections": "write cancellation point taskgroup",
                "declare induction": "compute the value from the loop variable",
                "declare mapper": "use offload.declare_mapper",
                "declare reduction": "use offload.declare_reduction",
                "declare simd": "call the function from a loop function, which compiles it",
                "declare target": _TARGETS,
                "declare variant": _VARIANTS,
                "dispatch": "call the function itself",
                "do": _FORTRAN_DO,
                "end": "a block ends with its indentation",
                "error": "use raise",
                "fuse": _SYNTHETIC,
                "groupprivate": "use a private array of a loop function",
                "interchange": _SYNTHETIC,
                "masked taskloop": _NESTED,
                "masked taskloop simd": _NESTED,
                "metadirective": _VARIANTS,
                "nothing": _OUT,
                "ordered": "write tasks with depend, or do the ordered part in a loop of its own",
                "parallel do": "write parallel for",
                "parallel do simd": "write parallel for simd",
                "parallel masked taskloop": _NESTED,
                "parallel masked taskloop simd": _NESTED,
                "parallel workshare": "write NumPy expressions, or parallel for",
                "requires": "leave it out; offload finds out what devices can do",
                "reverse": _SYNTHETIC,
                "scan": "write the running sum as a loop, or call numpy.cumsum",
                "scope": "leave it out; a team has one thread",
                "split": _SYNTHETIC,
                "stripe": _SYNTHETIC,
                "target parallel do": "write target parallel for",
                "target parallel do simd": "write target parallel for simd",
                "target teams distribute parallel do": "write target teams distribute parallel for",
                "target teams distribute parallel do simd": "write target teams distribute parallel for simd",
                "target teams workdistribute": "write target, or target teams loop",
                "task iteration": "write depend on the taskloop's own tasks, as tasks in a for",
                "taskloop simd": "write taskloop",
                "teams": "write teams distribute or teams loop around a loop, or parallel",
                "teams distribute parallel do": "write teams distribute parallel for",
                "teams distribute parallel do simd": "write teams distribute parallel for simd",
                "teams workdistribute": "write teams loop",
                "threadprivate": "use threading.local",
                "tile": _SYNTHETIC,
                "unroll": _SYNTHETIC,
                "workdistribute": "write NumPy expressions, or loop",
                "workshare": "write NumPy expressions, or for",
            }
        ),
        "acc": MappingProxyType(
            {
                "declare": "use offload.acc.declare",
                "end": "a block ends with its indentation",
                "routine": "decorate the function with @offload.acc.routine",
            }
        ),
    }
)
"""Directives by their words, with what to write instead."""

OTHER_CLAUSES: Final[Mapping[Language, frozenset[str]]] = MappingProxyType(
    {
        "omp": frozenset(
            {
                "absent",
                "adjust_args",
                "align",
                "allocate",
                "allocator",
                "append_args",
                "apply",
                "at",
                "atomic_default_mem_order",
                "bind",
                "capture",
                "collector",
                "combiner",
                "contains",
                "copyin",
                "counts",
                "depth",
                "device_safesync",
                "device_type",
                "doacross",
                "dynamic_allocators",
                "enter",
                "exclusive",
                "fail",
                "full",
                "graph_id",
                "holds",
                "in_reduction",
                "inbranch",
                "inclusive",
                "indirect",
                "induction",
                "inductor",
                "init",
                "init_complete",
                "initializer",
                "interop",
                "linear",
                "link",
                "local",
                "looprange",
                "match",
                "memscope",
                "message",
                "no_openmp",
                "no_openmp_constructs",
                "no_openmp_routines",
                "no_parallelism",
                "nocontext",
                "notinbranch",
                "novariants",
                "num_threads",
                "ordered",
                "otherwise",
                "partial",
                "permutation",
                "replayable",
                "reverse_offload",
                "safesync",
                "self_maps",
                "severity",
                "simd",
                "sizes",
                "threads",
                "threadset",
                "transparent",
                "unified_address",
                "unified_shared_memory",
                "uniform",
                "uses_allocators",
                "when",
            }
        ),
        "acc": frozenset({"bind", "device_resident", "device_type", "link", "nohost"}),
    }
)
"""The clauses that no directive of `tables` takes."""
