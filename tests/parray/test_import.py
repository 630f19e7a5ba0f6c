"""What importing array types costs, and what it needs."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import offload
assert not any(name.startswith("offload.parray") for name in sys.modules)
from offload import parray
assert not {"cupy", "mpi4py", "dask", "distributed", "rich"} & set(sys.modules)
assert all(getattr(parray, name).__doc__ for name in parray.__all__), parray.__all__
"""


def test_import():
    """`import offload` does not import array types; these need neither CuPy nor mpi4py, and each public name says
    what it is."""
    subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], check=True, timeout=60)
