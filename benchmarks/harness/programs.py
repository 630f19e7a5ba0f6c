"""The programs that studies load when they need them: peers, which import CuPy or Numba, and examples."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


def load_peer(name: str) -> ModuleType:
    """Return a module of ``benchmarks`` by its dotted name within it, such as ``gpu.tasks_cupy``."""
    return importlib.import_module(f"benchmarks.{name}")


def load_example(name: str) -> ModuleType:
    """Return an example of this checkout as a module."""
    path = ROOT / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # an example imports those in its folder, as when it is run
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module
