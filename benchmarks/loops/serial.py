"""The same loops as serial C, from ``benchmarks/loops/loops_serial.c``, by gcc -O3 -march=native."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.loops.probably import n_iterations
from offload.errors import InternalError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

_SOURCE: Final = Path(__file__).with_name("loops_serial.c")
_OPTIONS: Final = ("-O3", "-march=native", "-fPIC", "-shared", "-lm")


class SerialLoops:
    """The loops of a library of C, as attributes; called as the loop functions are.

    Raises
    ------
    UnsupportedError
        There is no gcc, or no source.
    InternalError
        gcc failed.
    """

    def __init__(self) -> None:
        gcc = shutil.which("gcc")
        if gcc is None or not _SOURCE.exists():
            raise UnsupportedError(f"the serial peer needs gcc and {_SOURCE}")
        with tempfile.TemporaryDirectory(prefix="offload-bench-") as folder:
            built = Path(folder) / "loops.so"
            command = [gcc, str(_SOURCE), "-o", str(built), *_OPTIONS]
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # as above
            if done.returncode:
                raise InternalError(f"benchmarks: gcc failed: {done.stderr[-400:]}")
            self._library = ctypes.CDLL(str(built))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, name)
        function.restype = ctypes.c_double if name == "dot" else None

        def call(*arguments: Any) -> Any:
            return function(*map(_passed, arguments), ctypes.c_int64(n_iterations(name, arguments)))

        return call


def _passed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_int64(int(value)) if isinstance(value, (int, np.integer)) else ctypes.c_double(value)
