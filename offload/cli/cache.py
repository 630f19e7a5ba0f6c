"""``offload cache``: show and empty the cache of compiled loops."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from offload.cli.output import write
from offload.devices import diskcache

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--clear", action="store_true", help="remove the files; each loop is compiled again at its next call"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Show the cache, or empty it and show its former contents; return the exit status.

    Raise `OSError`, or an ``ExceptionGroup`` of them, if the folder cannot be read or files cannot be removed.
    """
    folder = diskcache.folder(os.environ)
    files = diskcache.clear(folder) if args.clear else diskcache.files(folder)
    nbytes = sum(files.values())
    if args.json:
        facts = {"folder": str(folder), "n_files": len(files), "nbytes": nbytes, "is_cleared": args.clear}
        write(json.dumps(facts) + "\n")
    else:
        said = "removed " if args.clear else ""
        write(f"{folder}\n{said}{len(files):,} file{'' if len(files) == 1 else 's'}, {nbytes:,} bytes\n")
    return 0
