"""The hook that gives the tracked NumPy to the files of a program."""

from __future__ import annotations

import builtins
import importlib
import sys

import numpy as np
import pytest

from offload.sanitizer import numpy as face
from offload.sanitizer.imports import tracked_imports
from offload.sanitizer.tracked import is_tracked

FORMS = {
    "import numpy": "numpy.zeros(3)",
    "import numpy as np": "np.zeros(3)",
    "from numpy import zeros": "zeros(3)",
    "from numpy import *": "zeros(3)",
    "import numpy.random": "numpy.random.rand(3)",
    "import numpy.random as r": "r.rand(3)",
    "from numpy.random import default_rng": "default_rng(1).random(3)",
    "from numpy import random": "random.rand(3)",
    "from numpy.linalg import inv": "inv([[1.0]])",
    "import numpy.linalg": "numpy.linalg.inv([[1.0]])",
    "from numpy.lib.stride_tricks import as_strided\nimport numpy": "as_strided(numpy.zeros(3), (2,))",
    "def f():\n    import numpy\n    return numpy": "f().zeros(3)",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that writes a module into a folder on the path, and imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def load(text, name, folder=None):
        place = tmp_path / (folder or "")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(str(place))
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield load
    for name in set(sys.modules) - before:
        if name.startswith("prog_"):  # modules of NumPy that an import has loaded cannot be loaded a second time
            del sys.modules[name]


@pytest.mark.parametrize("statement", FORMS)
def test_each_form_of_import_gives_tracked_arrays(tmp_path, package, statement):
    """A file in the program's folder gets tracked arrays, whatever form the import has."""
    with tracked_imports(tmp_path):
        module = package(f"{statement}\nx = {FORMS[statement]}\n", "prog_form")
    assert is_tracked(module.x)


def test_a_module_in_a_subfolder_is_the_programs(tmp_path, package):
    """Files below the program's folder are its own, and those of packages that are installed there are not."""
    with tracked_imports(tmp_path):
        assert package("import numpy as np\n", "prog_inner", "parts").np is face
        assert package("import numpy as np\n", "prog_installed", "env/lib/site-packages").np is np


def test_other_files_get_numpy(tmp_path, package):
    """A file outside of the program's folder gets NumPy itself, and so does the standard library."""
    with tracked_imports(tmp_path / "program"):
        assert package("import numpy as np\n", "prog_other").np is np
    assert is_tracked(face.zeros(2))
    assert sys.modules["numpy"] is np


def test_code_without_a_file_is_the_programs(tmp_path):
    """The code of ``python -c`` is the program's."""
    names = {"__name__": "__main__"}
    with tracked_imports(tmp_path):
        exec("import numpy", names)
    assert names["numpy"] is face


def test_import_is_what_it_was_afterwards(tmp_path):
    """The end of the block takes the hook back, also if the block raises."""
    before = builtins.__import__
    with pytest.raises(ZeroDivisionError), tracked_imports(tmp_path):
        assert builtins.__import__ is not before
        raise ZeroDivisionError
    assert builtins.__import__ is before


def test_errors_of_imports_stay(tmp_path, package):
    """A name that NumPy does not have is the same error."""
    with tracked_imports(tmp_path), pytest.raises(ImportError, match="cannot import name 'nonsense' from 'numpy'"):
        package("from numpy import nonsense\n", "prog_wrong")
    with tracked_imports(tmp_path), pytest.raises(ModuleNotFoundError, match=r"No module named 'numpy.nonsense'"):
        package("import numpy.nonsense\n", "prog_wronger")
