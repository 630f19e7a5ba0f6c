"""Programs of the project's ``examples`` and ``benchmarks``, loaded from where they lie."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from offload.errors import UnsupportedError

if TYPE_CHECKING:
    from types import ModuleType

_PACKAGE = Path(__file__).parents[2]


def load_example(name: str) -> ModuleType:
    """Return an example as a module: the wheel's copy, or the file in a checkout.

    Raise `UnsupportedError` if neither has it.
    """
    return _load(name, _PACKAGE / "_examples" / f"{name}.py", _PACKAGE.parent / "examples" / f"{name}.py")


def load_benchmark(name: str) -> ModuleType:
    """Return a program of ``benchmarks``, by its path without suffix; only a checkout has them.

    Raises as `load_example` does.
    """
    return _load(Path(name).name, _PACKAGE.parent / "benchmarks" / f"{name}.py")


def _load(name: str, *places: Path) -> ModuleType:
    for path in places:
        if path.is_file():
            spec = importlib.util.spec_from_file_location(name, path)
            if spec is not None and spec.loader is not None:
                module = importlib.util.module_from_spec(spec)
                sys.path.insert(0, str(path.parent))  # a program finds those beside it, as when it is run
                try:
                    spec.loader.exec_module(module)
                finally:
                    sys.path.remove(str(path.parent))
                return module
    raise UnsupportedError(
        f"cannot find {name}.py; looked for {' and '.join(map(str, places))}; run the command in a clone of the project"
    )
