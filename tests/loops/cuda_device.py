"""A simulated device whose kernels are CUDA, compiled for the host: launches and their outcome without a GPU."""

from __future__ import annotations

import numpy as np

from offload.loops.emit.emit_cuda import FINISH
from tests.loops.cuda_form import launch, on_host


class HostCuda:
    """Kernels of dialect ``"cuda"``, each launch one operation of a simulated device's stream."""

    dialect = "cuda"
    target = "sm_90"

    def __init__(self):
        self.launches = []
        self.options = []

    def load(self, program):
        self.options.append(tuple(program.options))
        library = on_host(program.source)
        functions = {name: getattr(library, f"launch_{name}") for name in program.names}
        return {name: _Kernel(name, function, self.launches) for name, function in functions.items()}


class _Kernel:
    def __init__(self, name, function, launches):
        self._name, self._function, self._launches = name, function, launches

    def launch(self, stream, grid, block, shared_nbytes, arguments):
        assert self._name != FINISH or grid == (1, 1, 1)
        self._launches.append((self._name, grid, block, shared_nbytes))
        stream.launch(launch, self._function, np.array(arguments, np.int64), grid, block)
