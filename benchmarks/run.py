"""Run a study of what the library costs and reaches: ``python benchmarks/run.py NAME [OPTION …]``.

``--help`` lists the studies, and ``NAME --help`` the options of one. Each prints tables, or JSON with every sample.

The package that is measured is the one that ``import offload`` finds; the studies are always those of this folder. So
``PYTHONPATH=/another/tree python benchmarks/run.py NAME`` measures another tree with the same programs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent

STUDIES = {
    "tasks": ("tasks.command", "what a task costs, along with Dask and OpenMP in C"),
    "null": ("runtime.null", "what Python executes for an operation on a device that does nothing"),
    "observed": ("runtime.observed", "what a trace, a profile and the live view cost tasks of 20 µs"),
    "against": (
        "runtime.against",
        "the CPU time of another study, with another commit's package and with this tree's",
    ),
    "rect": ("data.rect", "what strided copies reach, along with contiguous ones"),
    "present": ("data.present", "what a look-up of mapped storage costs"),
    "acc": ("acc.command", "what OpenACC's queues gain over blocking calls"),
    "gpu": ("gpu.command", "what a CUDA device reaches, along with CuPy by hand"),
    "small": ("gpu.small", "what single small operations take, with any tree's package"),
    "replays": ("gpu.replays", "what replays of whole programs take, along with CuPy by hand"),
    "cuda_calls": ("gpu.cuda_calls", "what single calls of CUDA and CuPy take"),
    "loops": ("loops.command", "what loop functions reach, along with Numba, CUDA by hand and serial C"),
    "ported": ("gpu.ported", "what the porter's task form of a ring takes, along with the ring by hand"),
    "twins": ("loops.twins", "loops that gain nothing by a second device, on one GPU that plays two"),
    "pragma": ("pragma.command", "what NAS kernels with directive strings take, along with loop functions"),
    "sanitizer": ("sanitizer.command", "how many planted faults the sanitizer finds, by an oracle of its own"),
    "parray": ("parray.command", "what typed copies reach and cost"),
    "parray_mpi": ("parray.parray_mpi", "typed copies over the ranks of a job: mpiexec -n 2 python …"),
    "mpi": ("mpi.command", "what requests of MPI cost as events, and hide: mpiexec -n 2 python …"),
    "cluster": ("cluster.command", "what the devices of a Dask cluster cost, along with bare distributed"),
}
"""The module of each study, which has `add_arguments` and `run`, and its line in the list."""


def make_package() -> None:
    """Have ``import benchmarks`` find this folder, wherever the package `offload` comes from."""
    if "benchmarks" in sys.modules:
        return
    sys.path[:] = [path for path in sys.path if not path or Path(path).resolve() != HERE.resolve()]
    spec = importlib.util.spec_from_file_location(
        "benchmarks", HERE / "__init__.py", submodule_search_locations=[str(HERE)]
    )
    module = sys.modules["benchmarks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.append(str(HERE.parent))  # last: the tree that is measured may be another one


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of one study."""
    module = importlib.import_module(f"benchmarks.{STUDIES[name][0]}")
    parser = argparse.ArgumentParser(
        prog=f"benchmarks/run.py {name}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    if "\n" not in (parser.description or ""):
        parser.formatter_class = argparse.HelpFormatter
    parser.set_defaults(run=module.run)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the study that the arguments name; 0, or 2 for a mistake in them or where nothing can be measured."""
    make_package()
    argv = sys.argv[1:] if argv is None else argv
    listed = "\n".join(f"  {name:12}{what}" for name, (_, what) in STUDIES.items())
    top = argparse.ArgumentParser(
        prog="benchmarks/run.py",
        usage="%(prog)s NAME [OPTION ...]",
        description=f"Run a study:\n\n{listed}\n\n`benchmarks/run.py NAME --help` has the options of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("name", metavar="NAME", choices=list(STUDIES))
    from offload.cli.ranks import printed_once
    from offload.errors import OffloadError

    try:
        with printed_once(["--mpi"] if "mpi" in "".join(argv[:1]) else []):  # a mistake is told by one rank
            name = top.parse_args(argv[:1]).name
            args = parser_of(name).parse_args(argv[1:])
        return int(args.run(args) or 0)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except ImportError as error:
        needed = " (it needs a CUDA device, and CuPy)" if error.name in {"cupy", "cupyx"} else ""
        sys.stderr.write(f"benchmarks: error: {argv[0]} cannot run here: {error}{needed}\n")
    except (OffloadError, OSError) as error:
        sys.stderr.write(f"benchmarks: error: {error}\n")
    return 2


make_package()  # in the processes that a study starts, too

if __name__ == "__main__":
    sys.exit(main())
