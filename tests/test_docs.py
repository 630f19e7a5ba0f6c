"""Every listing of Python in the documentation runs, page by page, with warnings as errors, on the simulated device.

A listing that names an optional library (`LIBRARIES`) runs where the library is installed, with those listings of the
page that name none. So a page needs one library at a time. A listing that begins with `NEEDS_GPU` runs on a GPU only.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import offload
from offload import errors
from tests.profiles import few
from tests.strict import STRICT

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WRITTEN = [page for page in sorted(ROOT.glob("docs/**/*.md")) if "generated" not in page.parts]  # not by the build
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *WRITTEN]
WITH_LISTINGS = [page for page in PAGES if FENCE.search(page.read_text(encoding="utf-8"))]
QUICK = [page for page in WITH_LISTINGS if page.stem in {"README", "tutorial", "tasks", "data", "loops", "errors"}]
LIBRARIES = {"torch": "PyTorch", "jax": "JAX", "numba": "Numba"}
NAMED = re.compile(rf"\b({'|'.join(LIBRARIES)})\b")
NEEDS_GPU = "# needs a GPU\n"
PROGRAM = """
import linecache
page, text = {!r}, {!r}
linecache.cache[page] = len(text), None, text.splitlines(keepends=True), page  # where loops find their text
exec(compile(text, page, "exec"), {{"__name__": "__main__"}})
"""
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def blocks(page: Path) -> list[tuple[int, str, set[str]]]:
    """Return the listings of a page: the number of lines before each, its text, and the libraries that it names."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start(1)), found[1], set(NAMED.findall(found[1]))) for found in FENCE.finditer(text)
    ]


def listings(page: Path, library: str | None = None, *, has_gpu: bool = False) -> str:
    """Return the listings of a page as one program, in the lines that they have on the page.

    The program has the listings that name no library, and those that name this one alone.
    """
    lines = [""] * len(page.read_text(encoding="utf-8").splitlines())
    for first, listing, named in blocks(page):
        if named <= {library} and (has_gpu or not listing.startswith(NEEDS_GPU)):
            block = listing.splitlines()
            lines[first : first + len(block)] = block
    return "\n".join(lines) + "\n"


@functools.cache
def numba_has_cuda() -> bool:
    """Tell whether Numba's part for CUDA can be imported without a warning: it may be older than NumPy."""
    probe = [sys.executable, "-W", "error", "-c", "import numba.cuda; numba.cuda.jit"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


WITH_LIBRARIES = [
    (page, library) for page in WITH_LISTINGS for library in sorted(set().union(*(named for *_, named in blocks(page))))
]


def test_there_are_listings():
    """A pattern that finds nothing would pass."""
    names = {page.name for page in WITH_LISTINGS}
    assert {"README.md", "tutorial.md", "from-c-and-fortran.md", "from-openacc.md", "from-cuda-streams.md"} <= names


def check_run(program: str, page: Path, devices: str, folder: Path) -> str:
    """Run the listings of a page; they end well and leave nothing behind. Return what they wrote to standard error."""
    done = subprocess.run(
        [sys.executable, *STRICT, "-c", PROGRAM.format(str(page), program)],
        env={**os.environ, "OFFLOAD_DEVICES": devices, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())
    return done.stderr


@pytest.mark.parametrize("page", few(QUICK, WITH_LISTINGS), ids=lambda page: page.stem)
def test_page(page, tmp_path):
    """The listings of a page run in order, in one namespace; they check themselves, and leave nothing behind."""
    assert check_run(listings(page), page, "sim", tmp_path) == ""


@pytest.mark.parametrize("devices", ["sim:2", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("page", "library"), WITH_LIBRARIES, ids=[f"{page.stem}-{library}" for page, library in WITH_LIBRARIES]
)
def test_page_with_a_library(page, library, devices, tmp_path):
    """The listings that name a library run where it is installed: on two simulated devices, and on the GPUs."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{LIBRARIES[library]} is not installed")
    if library == "numba" and not numba_has_cuda():
        pytest.skip("Numba has no CUDA here")
    program = listings(page, library, has_gpu=devices == "cuda")
    told = check_run(program, page, devices, tmp_path)
    assert told == "" or devices == "cuda"  # where libraries may write about the GPU


def test_every_listing_runs_somewhere():
    """No listing needs two libraries."""
    assert not [(page.name, first) for page in WITH_LISTINGS for first, _, named in blocks(page) if len(named) > 1]
    assert {library for _, library in WITH_LIBRARIES} == set(LIBRARIES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links(page):
    """What a page links to in the repository is there."""
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not missing


def test_picture(tmp_path):
    """The pictures of README and of the front page are the graphs of their programs, as first_program.py draws them."""
    script = ROOT / "docs/pictures/first_program.py"
    subprocess.run([sys.executable, *STRICT, str(script), str(tmp_path)], check=True, cwd=ROOT, timeout=100)
    for picture in ("first-program.svg", "front-page.svg"):
        assert (tmp_path / picture).read_text("utf-8") == (script.parent / picture).read_text("utf-8")


def test_every_error_and_warning_has_its_program():
    """docs/errors.md has a row and a section with a program for each class of offload/errors.py, and for no other."""
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    classes = [
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception | Warning)
    ]
    assert sorted(re.findall(r"^\| \[`(\w+)`\]", text, re.MULTILINE)) == sorted(classes)
    sections = {
        found[1]: found[2] for found in re.finditer(r"^### `(\w+)`$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    }
    assert sorted(sections) == sorted(classes)
    for name, section in sections.items():
        tells = "warns" if name.endswith("Warning") else "raises"
        assert any(f"{tells}(omp.{name})" in program for program in FENCE.findall(section)), name


def test_every_public_name_is_in_the_reference():
    """docs/reference.md names everything that the package offers."""
    named = set(re.findall(r"`(\w+)`", (ROOT / "docs/reference.md").read_text(encoding="utf-8")))
    assert not set(offload.__all__) - named


def test_the_citation_has_the_version():
    """CITATION.cff names the version of the package."""
    assert f"\nversion: {offload.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
