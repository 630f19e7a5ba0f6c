"""``offload run --sanitize``: sanitize every runtime of a program, and write the findings to a file."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from offload.reports.files import check_writable, write_whole
from offload.runtime import registry, status
from offload.runtime.opening import refuse_unwatched
from offload.runtime.runtime import Runtime

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="find missing clauses and waits on simulated devices; print them on stderr at the end",
    )
    parser.add_argument("--report", metavar="FILE", help="with --sanitize: write the findings to FILE as JSON")


def prepare(args: argparse.Namespace, parser: argparse.ArgumentParser, program: Sequence[str]) -> None:
    """Check the options, and have the runtimes of the process sanitized.

    Parameters
    ----------
    args : argparse.Namespace
        The options.
    parser : argparse.ArgumentParser
        Ends the process for a mistake.
    program : sequence of str
        The program and its arguments, for the report.
    """
    if not args.sanitize:
        if args.report is not None:
            parser.error("argument --report: it is for the findings of --sanitize; add --sanitize")
        return
    path = None
    if args.report is not None:
        path = os.path.abspath(args.report.replace("%p", str(os.getpid())))  # noqa: PTH100  # a link stays one
        check_writable(path)
    refuse_unwatched(args.devices or os.environ.get("OFFLOAD_DEVICES"))
    from offload.runtime import sanitized

    Runtime.sanitizes_always = sanitized.keeps_summaries = True
    registry.at_end.append(lambda: _end(path, program))


@contextmanager
def tracked_program(kind: str, name: str) -> Iterator[None]:
    """Give the files of a program the tracked NumPy: those under its folder, or under the current one."""
    from offload.sanitizer.imports import tracked_imports

    with tracked_imports(Path(name).resolve().parent if kind == "file" else Path.cwd()):
        yield


def _end(path: str | None, program: Sequence[str]) -> None:
    """Write the report, and have the process fail if there are findings, or the sanitizer has failed."""
    from offload.runtime import sanitized
    from offload.sanitizer.findings import merged

    summary = merged(sanitized.summaries)
    if not sanitized.summaries:  # else each runtime has shown its own
        summary = summary._replace(not_seen=("the whole program, which opened no runtime",))
        with suppress(OSError, ValueError):  # nobody reads it
            from offload.sanitizer.report import show

            show(summary, sys.stderr)
    if path is not None:
        try:
            write_whole(path, [json.dumps(summary.as_json(program), indent=1), "\n"])
        except OSError as error:
            if sys.stderr is not None:
                with suppress(OSError, ValueError):
                    sys.stderr.write(f"offload: the report {path} could not be written: {error}\n")
            status.fail()
    if summary.findings or summary.failure:
        status.fail()
