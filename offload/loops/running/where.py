"""The places where loops run: how nests are prepared for this processor, and how a device gets kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from offload.errors import UnsupportedError
from offload.loops.running import pool
from offload.loops.running.arguments import Blank, on_host
from offload.loops.running.cuda_runs import ON_CUDA
from offload.loops.running.looks import Looks
from offload.loops.running.plan import form_of
from offload.runtime.current import here

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from offload.devices.base import Device, Kernels
    from offload.loops.running.cuda_runs import OnCuda
    from offload.loops.running.plan import NestPlan, Numbers
    from offload.loops.running.specialise import LoopProgram, Specialisation
    from offload.runtime.launch import DeviceTask


class OnHost:
    """How nests are prepared for the processor of this process; see `offload.loops.running.preparation.Where`."""

    takes_unaligned = True

    def __init__(self, *, is_in_order: bool = False) -> None:
        self.is_in_order = is_in_order  # one thread runs the iterations of each nest, in order

    def looks(self, spec: Specialisation, arrays: Mapping[str, Any], task: DeviceTask | None) -> Looks:
        """Return the object that looks at elements in the call."""
        return Looks(arrays, task)

    def on_host(self, arrays: Mapping[str, Any], task: DeviceTask | None) -> Mapping[str, np.ndarray[Any, Any]]:
        """Return arrays as NumPy has them."""
        return {name: on_host(array) for name, array in arrays.items()}

    def form(self, spec: Specialisation, number: int, plan: NestPlan) -> Any:
        """Return the form of a nest."""
        return form_of(spec, number, plan)

    def blank(self, spec: Specialisation, number: int, plan: NestPlan, numbers: Numbers) -> Blank[Any]:
        """Return the blank of a nest."""
        form = self.form(spec, number, plan)
        fields = form.kernel.fields if form.is_compiled else ()
        return Blank(form, fields, numbers.scalars[number], spec.free, numbers.views, numbers.axes[number])


ON_HOST: Final = OnHost()
# Where the program says that one thread runs the loop.
ALONE: Final = OnHost(is_in_order=True)


def kernels_of(device: Device, program: LoopProgram) -> Kernels:
    """Return how a device is given kernels; `UnsupportedError` if it runs none that loops become."""
    kernels = device.kernels
    if kernels is None:
        raise UnsupportedError(
            f"{program.directive} {program.name!r}: loops are not compiled for devices of kind {device.kind!r}; use "
            "if_=False, which runs the loop on the host"
        )
    return kernels


def where_on(device: Device, program: LoopProgram) -> OnCuda | OnHost:
    """Return how nests are prepared for a device; `UnsupportedError` if it runs none that loops become."""
    return ON_CUDA if kernels_of(device, program).dialect == "cuda" else ON_HOST


def n_threads_of(program: LoopProgram) -> int:
    """Return how many threads may work on a loop, the one that starts it included."""
    return min(program.words.num_threads or 1 + len(here().runtime.engine.threads), pool.n_cores())
