"""``offload port``: run a CuPy program on a stand-in, and report races and needless synchronisation."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from offload.cli.output import any_text, console, drop_unwritable, flush
from offload.cli.run import INTERRUPTED, check_graph, check_values, file_program, run, split
from offload.errors import OffloadError, UnsupportedError
from offload.interrupts.frames import is_own
from offload.reports.files import check_writable, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offload.cli.run import GivenProgram
    from offload.port.analysis import PortReport
    from offload.port.running import RecordedRun

_TAKE_VALUES = frozenset({"--on", "--report", "--graph", "--emit", "--access"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--on",
        choices=("sim", "cuda"),
        default="sim",
        help="sim carries the operations out by NumPy and needs no GPU; cuda carries them out by CuPy (default: sim)",
    )
    parser.add_argument("--report", metavar="FILE.json", help="write the report as JSON")
    parser.add_argument(
        "--graph",
        metavar="FILE",
        help="write the dependences between lines to a file with the suffix .dot, .html, .mmd, .pdf, .png or .svg",
    )
    parser.add_argument("--emit", metavar="FILE.py", help="write the program in task form, if it can be converted")
    parser.add_argument(
        "--access",
        metavar="KERNEL=in,out,…",
        action="append",
        default=[],
        help="the accesses of the arrays that a launch of a kernel passes: in, out or inout for each",
    )
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM.py [ARGUMENT ...]",
        help="a file of Python; the arguments that follow are the program's",
    )


def main(argv: Sequence[str], parser: argparse.ArgumentParser) -> int:
    """Run ``offload port`` with these arguments, those after the word ``port``, and return the exit status."""
    own, rest = split(argv, _TAKE_VALUES)
    args = parser.parse_args(own)
    check_values(args, parser)
    if not rest:
        parser.error("name a program: a file of Python")
    program = file_program(rest, parser)
    try:
        _check_files(args, program)
        options = _access_options(args.access)
        return _port(args, program, options)
    except (OffloadError, OSError, ValueError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:  # after the end of the program, whose own interrupts `run` answers
        return INTERRUPTED


def _check_files(args: argparse.Namespace, program: GivenProgram) -> None:
    """Raise an error if a file cannot be written; make the names absolute, as the program may change its folder."""
    if args.graph is not None:
        check_graph(args.graph)
    for name in ("report", "graph", "emit"):
        path = getattr(args, name)
        if path is None:
            continue
        check_writable(path)
        if os.path.realpath(path) == os.path.realpath(program.name):
            raise UnsupportedError(f"--{name}: {path!r} is the program itself; name another file")
        setattr(args, name, os.path.abspath(path))  # noqa: PTH100  # a link stays one


def _access_options(texts: Sequence[str]) -> list[Any]:
    from offload.port.kernels import access_option

    options = [access_option(text) for text in texts]
    names = [option.kernel for option in options]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"argument --access: kernel {name!r} is given twice; give all its accesses in one option")
    return options


def _port(args: argparse.Namespace, program: GivenProgram, options: Sequence[Any]) -> int:
    """Run the program, write and print its report, and return the exit status."""
    from offload.port.analysis import analyse, failure_by_doubt
    from offload.port.running import recorded

    path = os.path.abspath(program.name)  # noqa: PTH100  # as Python names the file
    with recorded(path, on=args.on, access=options) as past, _program_frames():
        status = run(program)
        for thread in threading.enumerate():  # Python waits for them too
            if not thread.daemon and thread is not threading.current_thread():
                thread.join()
    report = analyse(past.log, path, args.on)
    report.argv = [program.name, *program.args]
    report.failure = failure_by_doubt(past.log, status)
    if status and not report.failure:
        report.not_seen.append(
            f"The program ended with status {status}: the report is about the operations before that."
        )
    if args.emit is not None:
        _emit(args, program, options, status, past, report)
    if args.report is not None:
        write_whole(args.report, [json.dumps(report.as_dict(), indent=1), "\n"])
    _show(args, past, report)
    if report.is_faulty:
        return 1
    if status:
        return 2 if past.accesses.is_wrong else status
    return _unused(past)


@contextmanager
def _program_frames() -> Iterator[None]:
    """Let a traceback in the block show the program's frames, without those of the stand-in."""

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        frames = []
        while trace is not None:
            if not is_own(trace.tb_frame.f_globals.get("__name__")):
                frames.append(trace)
            trace = trace.tb_next
        for frame in reversed(frames):
            trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
        sys.__excepthook__(kind, error.with_traceback(trace), trace)

    before = sys.excepthook
    sys.excepthook = show
    try:
        yield
    finally:
        if sys.excepthook is show:
            sys.excepthook = before


def _emit(
    args: argparse.Namespace,
    program: GivenProgram,
    options: Sequence[Any],
    status: int,
    past: RecordedRun,
    report: PortReport,
) -> None:
    """Write the task form, or say why there is none."""
    from offload.port.emit import emit, obstacles_in

    if status:
        report.reasons += [f"the program ended with status {status}", *obstacles_in(report.program)]
        return
    if report.races:
        sides = ", ".join(f"{race.first.line} and {race.second.line}" for race in report.races[:5])
        report.reasons.append(f"the program has races, which have to be corrected first: lines {sides}")
        return
    emitted = emit(report.program, program.args, past.log, args.on, access=options, into=args.emit)
    report.reasons += emitted.reasons
    if emitted.text is not None:
        write_whole(args.emit, [emitted.text])
        report.emitted = args.emit


def _show(args: argparse.Namespace, past: RecordedRun, report: PortReport) -> None:
    """Print the report, and write the graph."""
    from offload.port.graphs import line_graph
    from offload.port.report import report_view
    from offload.views.files import visualize

    graph = line_graph(past.log, report)
    if args.graph is not None:
        visualize(graph, args.graph)
    with any_text():
        try:
            console().print(report_view(report, graph), crop=False)
            flush()
        except OSError:
            drop_unwritable()


def _unused(past: RecordedRun) -> int:
    """Return the status of the options ``--access`` that had no effect."""
    unused = past.accesses.unused
    if not unused:
        return 0
    launched = ", ".join(sorted(past.accesses.launched)) or "none"
    sys.stderr.write(
        f"offload port: error: --access names {', '.join(map(repr, unused))}, which the program never launched; it "
        f"launched: {launched}\n"
    )
    return 2
