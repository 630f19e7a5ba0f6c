"""OpenACC's constructs and routines: ``from offload import acc``. They carry its names without ``acc_``.

They use the same tasks, present table and streams as OpenMP's constructs, and you can mix both in one program.

These names are constants, or members of an enumeration:

* `async_default`, `async_noval` and `async_sync` are async-arguments: the first default queue, the current default
  queue, and no queue.
* `device_none`, `device_default`, `device_host`, `device_not_host`, `device_nvidia` and `device_sim` are the members of
  `DeviceType`.
* `property_memory`, `property_free_memory`, `property_shared_memory_support`, `property_name`, `property_vendor` and
  `property_driver` are the members of `DeviceProperty`.

Examples
--------
>>> @acc.parallel_loop(copyin=["x"], copy=["y"])
... def saxpy(a, x, y):
...     for i in range(x.size):
...         y[i] = a * x[i] + y[i]
>>> x, y = np.ones(3), np.zeros(3)
>>> saxpy(2.0, x, y)
>>> y
array([2., 2., 2.])
>>> acc.get_num_devices(acc.device_sim), acc.device_sim
(1, <DeviceType.SIM: 'sim'>)
"""

from offload.acc.addresses import deviceptr, host_data, hostptr, is_present, map_data, unmap_data
from offload.acc.bodies import LaunchConfig, launch_config
from offload.acc.clauses import async_default, async_noval, async_sync, zero
from offload.acc.compute import kernels, parallel, serial
from offload.acc.data import data, enter_data, exit_data, update
from offload.acc.declare import declare
from offload.acc.devices import (
    DeviceProperty,
    DeviceType,
    device_default,
    device_host,
    device_none,
    device_not_host,
    device_nvidia,
    device_sim,
    get_device_num,
    get_device_type,
    get_num_devices,
    get_property,
    init,
    on_device,
    property_driver,
    property_free_memory,
    property_memory,
    property_name,
    property_shared_memory_support,
    property_vendor,
    set_device_num,
    set_device_type,
    shutdown,
)
from offload.acc.loops import kernels_loop, loop, parallel_loop, routine
from offload.acc.memory import (
    free,
    malloc,
    memcpy_d2d,
    memcpy_d2d_async,
    memcpy_device,
    memcpy_device_async,
    memcpy_from_device,
    memcpy_from_device_async,
    memcpy_to_device,
    memcpy_to_device_async,
)
from offload.acc.queues import (
    async_test,
    async_test_all,
    get_cuda_stream,
    get_default_async,
    set_cuda_stream,
    set_default_async,
    wait,
    wait_all,
    wait_all_async,
    wait_any,
    wait_async,
)
from offload.acc.routines import (
    copyin,
    copyin_async,
    copyout,
    copyout_async,
    copyout_finalize,
    copyout_finalize_async,
    create,
    create_async,
    delete,
    delete_async,
    delete_finalize,
    delete_finalize_async,
    update_device,
    update_device_async,
    update_self,
    update_self_async,
)

__all__ = [
    "DeviceProperty",
    "DeviceType",
    "LaunchConfig",
    "async_default",
    "async_noval",
    "async_sync",
    "async_test",
    "async_test_all",
    "copyin",
    "copyin_async",
    "copyout",
    "copyout_async",
    "copyout_finalize",
    "copyout_finalize_async",
    "create",
    "create_async",
    "data",
    "declare",
    "delete",
    "delete_async",
    "delete_finalize",
    "delete_finalize_async",
    "device_default",
    "device_host",
    "device_none",
    "device_not_host",
    "device_nvidia",
    "device_sim",
    "deviceptr",
    "enter_data",
    "exit_data",
    "free",
    "get_cuda_stream",
    "get_default_async",
    "get_device_num",
    "get_device_type",
    "get_num_devices",
    "get_property",
    "host_data",
    "hostptr",
    "init",
    "is_present",
    "kernels",
    "kernels_loop",
    "launch_config",
    "loop",
    "malloc",
    "map_data",
    "memcpy_d2d",
    "memcpy_d2d_async",
    "memcpy_device",
    "memcpy_device_async",
    "memcpy_from_device",
    "memcpy_from_device_async",
    "memcpy_to_device",
    "memcpy_to_device_async",
    "on_device",
    "parallel",
    "parallel_loop",
    "property_driver",
    "property_free_memory",
    "property_memory",
    "property_name",
    "property_shared_memory_support",
    "property_vendor",
    "routine",
    "serial",
    "set_cuda_stream",
    "set_default_async",
    "set_device_num",
    "set_device_type",
    "shutdown",
    "unmap_data",
    "update",
    "update_device",
    "update_device_async",
    "update_self",
    "update_self_async",
    "wait",
    "wait_all",
    "wait_all_async",
    "wait_any",
    "wait_async",
    "zero",
]
