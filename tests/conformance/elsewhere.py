"""The tests of this directory that cannot run on the workers of a Dask cluster, by the reason."""

from __future__ import annotations

_VARIABLES = "a body writes to a variable of the test, or takes an object of this process along"
_STREAMS = "it uses a stream in the client, which tests/dask/test_devices.py shows is refused"
_PARTS = "a mapper maps a part of an attribute, which tests/dask/test_devices.py shows is refused"
_IDENTITY = "it compares the identity or the address of an object in the body with that in the client"
_COUNTS = "a body asks OpenACC for the number of devices, which are those of its worker"

NOT_ON_WORKERS = {
    _VARIABLES: {
        "test_constructs_and_routines_refuse_it",
        "test_dependents_are_released",
        "test_depend_in_in",
        "test_detach_without_workers",
        "test_early_fulfil_does_not_release_before_the_body",
        "test_inoutset_sets_are_closed",
        "test_mutexinoutset_excludes_until_the_event",
        "test_mutexinoutset_objects_do_not_deadlock",
        "test_priority_of_regions_on_a_device",
        "test_self_clause",
        "test_strings_over_methods",
        "test_target_defaultmap_firstprivate",
        "test_target_parallel_if_device",
        "test_target_private",
        "test_target_task_depend_mutexinoutset",
        "test_taskdep_depobj",
        "test_taskwait_depend_all",
        "test_taskwait_inside_a_task",
        "test_taskwait_nowait_is_edges",
        "test_the_end_waits_for_tasks_that_nothing_orders",
        "test_undeferred_mutexinoutset",
    },
    _STREAMS: {"test_interop", "test_sync_as_the_default", "test_target_is_accessible_with_usm"},
    _PARTS: {"test_the_host_gives_a_body_the_same"},
    _COUNTS: {"test_routines_in_a_region"},
    _IDENTITY: {
        "test_containers_that_hold_themselves",
        "test_host_objects_with_an_array_interface",
        "test_target_has_device_addr",
        "test_views_of_a_pool",
    },
}
FILES_NOT_ON_WORKERS = {"test_interop": _STREAMS, "test_mapped_parts": _PARTS}


def why_not_on_workers(item):
    """Return why a test cannot run on workers; None if it can."""
    name = item.originalname
    found = (reason for reason, names in NOT_ON_WORKERS.items() if name in names)
    return FILES_NOT_ON_WORKERS.get(item.module.__name__.rpartition(".")[2]) or next(found, None)
