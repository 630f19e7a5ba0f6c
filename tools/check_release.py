"""Build the sdist and the wheel, check both, and try the wheel: ``python tools/check_release.py``.

The program takes the files of this tree that git does not ignore, so build outputs never get into a package. It needs
git, pip and the package index, and installs its own tools into an environment that it throws away. Steps:

1. ``python -m build`` makes the sdist, and from the sdist one pure wheel.
2. ``twine check --strict`` and ``check-wheel-contents``.
3. The sdist holds each file of the tree. The wheel holds the package, the examples, ``py.typed`` and the licence.
4. For each Python: install the wheel in an empty environment, away from the tree, and try it with and without a C
   compiler for loops.

``--python`` names the interpreters. By default, the program looks on ``PATH`` and in pyenv's folder for each version
that the classifiers in ``pyproject.toml`` name, and says which it did not find. ``--out`` keeps the two files.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("build", "twine", "check-wheel-contents")
LEFT_OUT = frozenset({".gitignore"})
"""Files of the tree that an sdist may lack: hatchling adds the first one by itself."""

LEAST_BYTES = 1_000
"""A wheel without the package's code would pass the comparison of names; each must have some contents."""

SMOKE = """
import importlib.metadata, importlib.resources, pathlib, sys
import offload as omp
where = pathlib.Path(omp.__file__).resolve()
assert pathlib.Path(sys.prefix).resolve() in where.parents, f"offload is imported from {where}"
assert omp.__version__ == importlib.metadata.version("offload")
assert (where.parent / "py.typed").is_file()
print("version", omp.__version__, "on Python", sys.version.split()[0])
"""

COMPILED = """
import sys, warnings
import numpy as np
import offload as omp

@omp.target_loop
def triple(x):
    for i in range(len(x)):
        x[i] = 3 * x[i]

x = np.arange(1000.0)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    triple(x)
assert (x == 3 * np.arange(1000.0)).all()
has_compiler = sys.argv[1] == "yes"
assert any("no C compiler" in str(one.message) for one in told) is not has_compiler, told
print("a loop, compiled" if has_compiler else "a loop, without a compiler")
"""


class CheckError(Exception):
    """A check failed; the message says which."""


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it printed; raise `CheckError` with all output if it fails."""
    done = subprocess.run(  # noqa: S603  # commands of this file
        [str(part) for part in command],
        cwd=cwd,
        env=None if env is None else dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CheckError(f"status {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def need(holds: object, message: str) -> None:
    """Raise `CheckError` unless a condition holds."""
    if not holds:
        raise CheckError(message)


def clean_environment(folder: Path) -> dict[str, str]:
    """Return the environment without settings of Python, pip's target and offload, with a cache of its own."""
    names = ("PYTHON", "OFFLOAD_", "OMP_", "ACC_", "VIRTUAL_ENV", "PIP_TARGET")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
    return {**kept, "OFFLOAD_CACHE_DIR": str(folder / "cache"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


# -- the two files -------------------------------------------------------------------------------------


def tree_files() -> list[str]:
    """Return the files of the tree that git does not ignore, also if the tree is a copy and no repository."""
    with tempfile.TemporaryDirectory() as empty:
        run("git", "init", "-q", empty, cwd=ROOT)
        git = ("git", f"--git-dir={empty}/.git", f"--work-tree={ROOT}")
        listed = run(*git, "ls-files", "-z", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    return sorted(name for name in listed if name and (ROOT / name).is_file())


def copy_tree(files: Iterable[str], to: Path) -> None:
    """Copy files of the tree to an empty folder."""
    for name in files:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name)


def make_environment(python: Path, folder: Path) -> Path:
    """Make an empty environment and return its interpreter."""
    run(python, "-m", "venv", folder, cwd=folder.parent)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def build(python: Path, tree: Path, out: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it; return both."""
    run(python, "-m", "build", "--outdir", out, tree, cwd=out.parent)
    made = sorted(out.iterdir())
    need(len(made) == 2, f"one sdist and one wheel were expected, and there are {[path.name for path in made]}")
    wheel, sdist = sorted(made, key=lambda path: path.suffix != ".whl")
    need(wheel.name.endswith("-py3-none-any.whl"), f"{wheel.name} is no pure wheel")
    return sdist, wheel


def check_sdist(sdist: Path, files: Iterable[str]) -> None:
    """Require that the sdist has the files of the tree, and beyond these only its metadata."""
    with tarfile.open(sdist) as archive:
        inside = {member.name.partition("/")[2] for member in archive if member.isfile()}
    missing = set(files) - inside - LEFT_OUT
    need(not missing, f"the sdist lacks {sorted(missing)[:10]} ({len(missing)} files)")
    more = inside - set(files) - {"PKG-INFO"}
    need(not more, f"the sdist has {sorted(more)[:10]}, which are not in the tree ({len(more)} files)")


def check_wheel(wheel: Path, files: Iterable[str], version: str) -> None:
    """Require that the wheel has the package, the examples and the licence, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {info.filename: info.file_size for info in archive.infolist() if not info.is_dir()}
        info = f"offload-{version}.dist-info"
        metadata = message_from_string(archive.read(f"{info}/METADATA").decode("utf-8"))
        about = message_from_string(archive.read(f"{info}/WHEEL").decode("utf-8"))
    wanted = {name for name in files if name.startswith("offload/")}
    wanted |= {f"offload/_examples/{name.removeprefix('examples/')}" for name in files if name.startswith("examples/")}
    found = {name for name in inside if not name.startswith(info)}
    need(found == wanted, f"the wheel lacks or adds {sorted(found ^ wanted)[:10]}")
    need("offload/py.typed" in found, "the wheel lacks offload/py.typed")
    need(inside["offload/__init__.py"] > LEAST_BYTES, "offload/__init__.py is empty in the wheel")
    need(f"{info}/licenses/LICENSE" in inside, "the wheel lacks the licence")
    need(about["Root-Is-Purelib"] == "true", "the wheel is not pure")
    need((metadata["Name"], metadata["Version"]) == ("offload", version), f"the wheel is {metadata['Version']}")
    need(metadata["License-Expression"] == "Apache-2.0", "the wheel names no licence")


# -- the wheel in empty environments -------------------------------------------------------------------


def named_versions() -> list[str]:
    """Return the versions of Python that the classifiers name."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    return [
        found[1] for one in classifiers if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one))
    ]


def find_python(version: str) -> Path | None:
    """Return an interpreter of a version: on ``PATH``, or the newest of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = [path for path in pyenv.glob(f"{version}.*/bin/python") if path.parents[1].name.split(".")[-1].isdigit()]
    newest = sorted(kept, key=lambda path: int(path.parents[1].name.split(".")[-1]))[-1:]
    on_path = shutil.which(f"python{version}")
    for path in [*newest, *([Path(on_path)] if on_path else [])]:
        try:
            said = run(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])", cwd=ROOT)
        except CheckError:  # a shim of pyenv for a version that is not chosen
            continue
        if said.strip() == version:
            return path
    return None


def readme_program() -> str:
    """Return the first program of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^<!-- ci: program -->\n```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise CheckError("README.md has no program after <!-- ci: program -->")
    return found[1]


def try_wheel(python: Path, wheel: Path, scratch: Path) -> None:
    """Install the wheel in an empty environment and try it, with and without a compiler for loops."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    inner = make_environment(python, folder / "env")
    run(inner, "-m", "pip", "install", "-q", wheel, cwd=folder)
    run(inner, "-m", "pip", "check", cwd=folder)
    plain = clean_environment(folder)
    print("  " + run(inner, "-W", "error", "-c", SMOKE, cwd=folder, env=plain).strip())
    run(inner, "-W", "error", "-c", readme_program(), cwd=folder, env=plain)
    command = inner.with_name("offload")
    facts = json.loads(run(command, "info", "--json", cwd=folder, env=plain))
    program = folder / "loop.py"
    program.write_text(COMPILED, encoding="utf-8")
    for has_compiler in (True, False):
        if has_compiler and facts["compiler"] is None:
            print("  no C compiler here: loops were tried without one only")
            continue
        env = plain if has_compiler else {**plain, "OFFLOAD_CC": "none"}
        told = run(inner, program, "yes" if has_compiler else "no", cwd=folder, env=env).strip()
        demo = run(command, "demo", "fft3d", "--shape", "16,12,10", "--verify", "--json", cwd=folder, env=env)
        need(json.loads(demo), "offload demo printed no result")
        print(f"  {told}; the demo")
    package = Path(run(inner, "-c", "import offload; print(offload.__path__[0])", cwd=folder, env=plain).strip())
    shutil.copytree(package / "_examples/streams", folder / "streams")  # files of a package are not a program's
    run(command, "port", "streams/step0_by_hand.py", cwd=folder, env=plain)
    run(command, "run", "--sanitize", "streams/step5.py", cwd=folder, env=plain)
    print("  offload port and offload run --sanitize on installed examples")


# -- the program ---------------------------------------------------------------------------------------


def interpreters(asked: Sequence[str]) -> list[Path]:
    """Return the interpreters to try, and print which versions were not found."""
    if asked:
        return [Path(shutil.which(name) or name) for name in asked]
    found = {version: find_python(version) for version in named_versions()}
    for version in (version for version, path in found.items() if path is None):
        print(f"Python {version}: not found, not tried")
    return [path for path in found.values() if path is not None]


def check(asked: Sequence[str], out: Path | None, scratch: Path) -> None:
    """Make all checks; raise `CheckError` at the first that fails."""
    files = tree_files()
    tree, dist = scratch / "tree", scratch / "dist"
    copy_tree(files, tree)
    dist.mkdir()
    tools = make_environment(Path(sys.executable), scratch / "tools")
    run(tools, "-m", "pip", "install", "-q", *TOOLS, cwd=scratch)
    sdist, wheel = build(tools, tree, dist)
    version = wheel.name.split("-")[1]
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes; {wheel.name}: {wheel.stat().st_size:,} bytes")
    run(tools.with_name("twine"), "check", "--strict", sdist, wheel, cwd=scratch)
    run(tools.with_name("check-wheel-contents"), wheel, cwd=scratch)
    check_sdist(sdist, files)
    check_wheel(wheel, files, version)
    print("twine check, check-wheel-contents, contents and metadata: ok")
    pythons = interpreters(asked)
    need(pythons, "no Python was found to try the wheel on; name one by --python")
    for python in pythons:
        began_s = time.monotonic()
        print(f"{python}:")
        try_wheel(python, wheel, scratch)
        print(f"  ok, {time.monotonic() - began_s:.0f} s")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        for path in (sdist, wheel):
            shutil.copy2(path, out / path.name)


def main() -> int:
    """Run the program; return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", action="append", default=[], metavar="PROGRAM", help="an interpreter to try")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keep the sdist and the wheel there")
    given = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text stream
    with tempfile.TemporaryDirectory(prefix="offload-release.") as scratch:
        try:
            check(given.python, given.out and given.out.resolve(), Path(scratch).resolve())
        except CheckError as error:
            print(f"check_release: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
