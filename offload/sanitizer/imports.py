"""Give the program's own files the tracked NumPy.

The statement ``import`` calls ``builtins.__import__``. While `tracked_imports` is entered, that gives files under the
program's folder the face of NumPy's modules, and everybody else the modules.
"""

from __future__ import annotations

import builtins
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from offload.interrupts.frames import is_own
from offload.sanitizer import numpy as _face
from offload.sanitizer.faces import face_of
from offload.sanitizer.names import is_installed

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


@contextmanager
def tracked_imports(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Have the files under a folder import the tracked NumPy.

    Parameters
    ----------
    folder : str or path
        The program's folder. Packages that are installed in it are not the program's.

    Notes
    -----
    The program is also every module without a file, such as the code of ``python -c``. The former meaning of ``import``
    comes back at the end of the block. Modules that were imported keep the NumPy that they have.
    """
    root = Path(folder).resolve()
    plain = builtins.__import__
    known: dict[Any, bool] = {}

    def load(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        module = plain(name, globals, locals, fromlist, level)
        if level or not globals or not (name == "numpy" or name.startswith("numpy.")):
            return module
        file = globals.get("__file__")
        is_program = known.get(file) if file is not None else globals.get("__name__") == "__main__"
        if is_program is None:
            is_program = known[file] = is_under(root, str(file)) and not is_own(globals.get("__name__"))
        if not is_program:
            return module
        return _face if module is sys.modules["numpy"] else face_of(module)

    builtins.__import__ = load
    try:
        yield
    finally:
        builtins.__import__ = plain


_PACKAGES: Final = frozenset({"site-packages", "dist-packages"})


def is_under(root: Path, file: str) -> bool:
    """Tell whether a file lies under the program's folder, and is not installed there.

    The program itself may be part of an installed package, as an example is.
    """
    path = Path(file).resolve()
    if not path.is_relative_to(root):
        return False
    if not is_installed(str(root)):
        return not is_installed(file)
    below = path.relative_to(root).parts
    return _PACKAGES.isdisjoint(below) and (root.name not in _PACKAGES or len(below) == 1)
