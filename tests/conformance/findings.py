"""The tests of this directory that the sanitizer has findings in, on purpose, by the reason."""

from __future__ import annotations

STALE = {
    "the old values on the host show that nothing was copied back": {
        "openacc/test_async.py::test_async_routines",
        "openacc/test_async.py::test_finalize_in_a_queue",
        "openacc/test_compute.py::test_data_clauses",
        "openacc/test_compute.py::test_default_none",
        "openacc/test_compute.py::test_default_none_in_a_region",
        "openacc/test_compute.py::test_options",
        "openacc/test_compute.py::test_parallel_copyout",
        "openacc/test_counters.py::test_acc_in_a_target_data_region",
        "openacc/test_counters.py::test_an_exit_in_a_region_takes_dynamic_references",
        "openacc/test_counters.py::test_compute_regions_count_for_themselves",
        "openacc/test_counters.py::test_data_copyout_reference_counts",
        "openacc/test_counters.py::test_dynamic_data_outlives_a_region",
        "openacc/test_counters.py::test_enter_exit_data_if",
        "openacc/test_counters.py::test_exit_data_copyout_reference_counts_t1",
        "openacc/test_counters.py::test_exit_data_copyout_reference_counts_t2",
        "openacc/test_counters.py::test_exit_data_copyout_reference_counts_t3",
        "openacc/test_counters.py::test_exit_data_finalize",
        "openacc/test_counters.py::test_nothing_dynamic_ends_a_region",
        "openacc/test_counters.py::test_openmp_counts_in_the_dynamic_counter",
        "openacc/test_counters.py::test_openmp_sees_data_of_a_region",
        "openacc/test_counters.py::test_parts_of_what_is_present",
        "openacc/test_counters.py::test_present_data_is_counted_and_not_copied",
        "openacc/test_counters.py::test_the_last_exit_decides",
        "openacc/test_counters.py::test_the_last_one_copies",
        "openacc/test_data.py::test_absent_data",
        "openacc/test_data.py::test_clauses_of_compute_regions",
        "openacc/test_data.py::test_enter_exit_no_lower_bound",
        "openacc/test_data.py::test_no_create_of_compute_regions",
        "openacc/test_data.py::test_no_lower_bound",
        "openacc/test_data.py::test_parallel_copyout",
        "openacc/test_data.py::test_zero",
        "openacc/test_declare.py::test_declare_copyin",
        "openacc/test_declare.py::test_declare_create",
        "openacc/test_declare.py::test_declare_function_scope",
        "openacc/test_declare.py::test_nothing_ends_it",
        "openacc/test_host_data.py::test_host_data",
        "openacc/test_items.py::test_objects_with_mappers",
        "openacc/test_items.py::test_sections_of_one_array",
        "openacc/test_items.py::test_views",
        "openacc/test_loop.py::test_reduction_of_an_array_of_one_element",
        "openacc/test_loop_constructs.py::test_data_clauses",
        "openacc/test_loop_constructs.py::test_default_none",
        "openacc/test_loop_constructs.py::test_it_runs_on_the_device",
        "openacc/test_malloc_memcpy.py::test_acc_memcpy_d2d",
        "openacc/test_malloc_memcpy.py::test_memcpy_d2d_of_parts",
        "openacc/test_memory.py::test_acc_create",
        "openacc/test_memory.py::test_leaving",
        "openacc/test_reductions.py::test_reductions_in_data_regions",
        "openacc/test_update.py::test_if_present",
        "openacc/test_update.py::test_update_if",
        "openacc/test_update.py::test_update_of_absent_data",
        "openacc/test_update.py::test_update_of_views",
        "openacc/test_update.py::test_update_routines",
        "openacc/test_wait.py::test_wait_if_t3",
        "test_data.py::test_an_array_that_became_read_only_loses_nothing_else",
        "test_data.py::test_counts",
        "test_data.py::test_data_absent_at_exit",
        "test_data.py::test_target_data_map_alloc",
        "test_data.py::test_target_data_map_from",
        "test_data.py::test_target_data_map_tofrom",
        "test_data.py::test_target_data_pointer_swap",
        "test_data.py::test_target_enter_data_map",
        "test_data.py::test_target_enter_exit_data_map_malloced_array",
        "test_devices.py::test_a_set_that_one_device_goes_on_with",
        "test_devices.py::test_an_update_to_one_device_fetches_no_more_than_it_must",
        "test_devices.py::test_what_a_lost_device_alone_had_is_lost",
        "test_persistent.py::test_declare_target_device_type",
        "test_persistent.py::test_declare_target_each_device",
        "test_persistent.py::test_declare_target_values",
        "test_persistent.py::test_ompx_hold_target_data",
        "test_routines.py::test_requires_unified_shared_memory_heap",
        "test_target.py::test_target_assumed_array_size",
        "test_target.py::test_target_implicit_partial_map",
        "test_target.py::test_target_map_pointer",
        "test_target_clauses.py::test_defaults_are_mapped",
        "test_target_clauses.py::test_target_defaultmap_leaves_explicit_items_and_device_arrays",
        "test_target_clauses.py::test_target_defaultmap_present",
        "test_target_clauses.py::test_target_defaultmap_to_from_tofrom",
        "test_target_clauses.py::test_target_map_zero_length_pointer",
        "test_target_loop.py::test_clauses_come_first",
        "test_target_loop.py::test_present_data_stays_on_the_device",
        "test_target_loop.py::test_second_device",
        "test_update.py::test_dependences_hold_without_transfer",
        "test_update.py::test_packed_entries",
        "test_update.py::test_strided_offset_multidim_update",
        "test_update.py::test_strided_partial_update",
        "test_update.py::test_target_update_array_extension",
        "test_use_device.py::test_target_data_use_device_ptr",
    },
    "it looks at the parts of objects that are not copied back": {
        "test_mapped_parts.py::test_expressions",
        "test_mapped_parts.py::test_planes",
        "test_mapped_parts.py::test_several_parts",
        "test_mappers.py::test_data_constructs_take_objects",
        "test_mappers.py::test_defaultmap_of_objects",
        "test_mappers.py::test_effective_types",
        "test_mappers.py::test_mappers_are_inherited_and_replaced",
        "test_mappers.py::test_mappers_nest",
        "test_mappers.py::test_named_mappers",
        "test_mappers.py::test_update_of_an_object_moves_its_own_direction",
    },
    "it compares all arrays of two programs, also those that only a device has changed": {
        "pragma/test_acc.py::test_data",
        "pragma/test_acc.py::test_regions",
        "pragma/test_acc_loops.py::test_present_data",
        "pragma/test_target.py::test_clauses",
        "pragma/test_target_data.py::test_target_data",
    },
    "the old values on the device show that nothing was copied to it": {
        "openacc/test_compute.py::test_parallel_copyout",
        "openacc/test_counters.py::test_enter_exit_data_if",
        "openacc/test_counters.py::test_entering_present_data",
        "openacc/test_counters.py::test_openmp_sees_data_of_a_region",
        "openacc/test_counters.py::test_present_data_is_counted_and_not_copied",
        "openacc/test_data.py::test_absent_data",
        "openacc/test_declare.py::test_declare_copyin",
        "openacc/test_loop_constructs.py::test_conditions",
        "openacc/test_memory.py::test_acc_create",
        "openacc/test_update.py::test_update_of_views",
        "test_data.py::test_target_data_map_to",
        "test_data.py::test_target_enter_data_global_array",
        "test_data.py::test_target_enter_data_if",
        "test_mappers.py::test_update_of_an_object_moves_its_own_direction",
        "test_persistent.py::test_declare_target_values",
        "test_routines.py::test_requires_unified_shared_memory_heap",
        "test_target.py::test_map_always",
        "test_update.py::test_target_update_if",
        "test_update.py::test_target_update_mapper_to_discontiguous",
        "test_update.py::test_target_update_to",
        "test_update.py::test_target_update_to_discontiguous",
    },
    "a region reads storage that nobody has written, as its data was removed before": {
        "test_data.py::test_data_absent_at_exit",
    },
}
RACES = {
    "storage is freed before the copies that use it": {
        "test_closed_storage.py::test_a_task_that_comes_too_late_fails",
    },
    "its regions map an array whole, and depend on other items": {
        "pragma/test_target.py::test_iterator_in_depend",
    },
    "it looks at arrays that tasks are about to change": {
        "test_depend.py::test_depend_inout_omp_all_memory",
    },
    "deferred constructs without dependences are ordered by their storage alone, which it tests": {
        "test_devices.py::test_constructs_wait_for_streams_that_stand_still",
        "test_update.py::test_update_waits_for_the_last_write",
        "test_update.py::test_updates_at_two_lines",
    },
    "a copy names the array that it writes in no dependence": {
        "test_taskgroup.py::test_nothing_is_synchronous_without_workers",
    },
}
RACES_UNDER_SOME_SCHEDULES = {
    "a region may come before the deferred entry of its data, or find the data": {
        "pragma/test_target_data.py::test_target_data",
    },
}
NOT_SANITIZED = {
    "a device of its own kind cannot be observed": {"test_devices.py::test_devices_of_two_kinds"},
}


def why_findings(place):
    """Return the marks of a test, with the reason of each."""
    found = []
    races = RACES | RACES_UNDER_SOME_SCHEDULES
    for mark, reasons in (("looks_at_stale_data", STALE), ("races_on_purpose", races)):
        found += [(mark, reason) for reason, places in reasons.items() if place in places]
    return found


def why_not_sanitized(place):
    """Return why a test cannot run under the sanitizer; None if it can."""
    return next((reason for reason, places in NOT_SANITIZED.items() if place in places), None)


def always_has_findings(mark, place):
    """Tell whether each run of a marked test has a finding."""
    return mark != "races_on_purpose" or all(place not in places for places in RACES_UNDER_SOME_SCHEDULES.values())
