"""``offload info``: the devices, the requirements of devices and loops, and the settings."""

from __future__ import annotations

import json
import os
from importlib import metadata
from typing import TYPE_CHECKING, Any

from rich.table import Table

import offload as omp
from offload.cli.demo.options import open_runtime
from offload.cli.demo.report import size
from offload.cli.output import console, write
from offload.devices.cuda.kind import CudaKind
from offload.loops.running.build import builder

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--devices",
        metavar="SPEC",
        help="devices to open, such as cuda:0 or sim:2 (default: OFFLOAD_DEVICES, else CUDA, else sim)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Show a runtime that is made here; return the exit status."""
    with open_runtime(args.devices, os.environ) as runtime:
        facts: dict[str, Any] = {
            "version": omp.__version__,
            "devices": [
                {
                    "number": device.number,
                    "kind": device.kind,
                    "name": device.name,
                    "free_nbytes": free,
                    "total_nbytes": total,
                }
                for device in omp.devices()
                for free, total in [device.memory_info()]
            ],
            "initial_device": runtime.initial_device,
            "default_device": omp.get_default_device(),
            # What is missing is told as None, never as an error: this is the command for machines where things fail.
            "cupy": cupy_version(),
            "cuda_driver": driver_version(),
            "compiler": compiler(),
            "env": runtime.settings.variables,  # those that offload reads, set or not
        }
    if args.json:
        write(json.dumps(facts) + "\n")
    else:
        _show(facts)
    return 0


def _show(facts: dict[str, Any]) -> None:
    shows = console()
    shown = Table("number", "kind", "name", "free", "memory (bytes)", title="devices", title_justify="left")
    for device in facts["devices"]:
        free, total = device["free_nbytes"], device["total_nbytes"]
        shown.add_row(str(device["number"]), device["kind"], device["name"], size(free), f"{size(total)} ({total:,})")
    shown.add_row(str(facts["initial_device"]), "host", "the host, also -1", "", "")
    shows.print(shown)
    shows.print(f"default device: {facts['default_device']}")
    shows.print(f"CuPy: {facts['cupy'] or 'not installed'}")
    shows.print(f"CUDA driver: {facts['cuda_driver'] or 'not found'}")
    shows.print(f"C compiler: {facts['compiler'] or 'no working one found; loops run as Python'}")
    shown = Table("variable", "value", title="settings", title_justify="left")
    for name, value in facts["env"].items():
        shown.add_row(name, "not set" if value is None else str(value))
    shows.print(shown)


def cupy_version() -> str | None:
    """Return the package that CuPy comes from and its version; None if CuPy is not installed. Do not import it."""
    # The package is named after the CUDA version that it is for: cupy-cuda12x.
    for name in metadata.packages_distributions().get("cupy", ()):
        return f"{name} {metadata.version(name)}"
    return None


def driver_version() -> str | None:
    """Return the version of CUDA that the driver has; None if there is no driver."""
    try:
        return CudaKind().driver_version()
    except (OSError, AttributeError):  # no library of the driver, or one without this function
        return None


def compiler() -> str | None:
    """Return the command of the C compiler for loops and its version; None if none works."""
    found = builder.compiler  # compiles the loop threads, if nobody has yet
    return None if found is None else f"{found} ({found.identity.partition(chr(10))[0].strip()})"
