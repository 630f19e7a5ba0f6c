"""``offload run``: run a program as ``python`` does, and show what it does."""

from __future__ import annotations

import argparse
import builtins
import os
import runpy
import sys
import types
from functools import partial
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.cli import sanitize
from offload.cli.output import any_text
from offload.errors import OffloadError
from offload.reports.files import TRACE_SUFFIXES, check_suffix, check_writable
from offload.runtime import observing, registry, reporting
from offload.runtime.runtime import Runtime
from offload.runtime.settings import read_settings
from offload.tasks.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from offload.cli.fences import FenceLog
    from offload.events.log import TaskLog

INTERRUPTED = 130
_ARCHIVE = b"PK\x03\x04"  # the beginning of a zip file
_TAKE_VALUES = frozenset({"--devices", "--trace", "--graph", "--hang", "--report"})
_BEGIN_PROGRAM = frozenset({"-m", "-c"})
_OWN_FILES = frozenset({__file__, __file__.replace("run.py", "command.py")})
_TRACKING = os.path.join(os.path.dirname(os.path.dirname(__file__)), "sanitizer", "")  # noqa: PTH118, PTH120
"""The folder of the code that stands between a program and NumPy while it is sanitized."""


class GivenProgram(NamedTuple):
    """A program to run: a file, a module (``-m``) or code (``-c``), and its arguments."""

    kind: str
    name: str
    args: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--devices", metavar="SPEC", help="devices of runtimes that name none, such as sim:2, as OFFLOAD_DEVICES does"
    )
    parser.add_argument("--check", action="store_true", help="report data that is left, as Runtime(check=True) does")
    parser.add_argument("--live", action="store_true", help="show the tasks on stderr while the program runs")
    parser.add_argument("--profile", action="store_true", help="print where the time went on stderr at the end")
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="write a trace for Perfetto to FILE.json or FILE.json.gz; in names of files, %%p is the process number",
    )
    parser.add_argument(
        "--graph",
        metavar="FILE",
        help="write the dependence graph to a file with the suffix .dot, .html, .mmd, .pdf, .png or .svg",
    )
    parser.add_argument(
        "--hang", metavar="SECONDS", help="say what a wait waits for after so long without progress (OFFLOAD_HANG_S)"
    )
    sanitize.add_arguments(parser)
    parser.add_argument(
        "program",
        nargs=argparse.REMAINDER,
        metavar="PROGRAM [ARGUMENT ...]",
        help="a file of Python, or -m MODULE, or -c CODE; the arguments that follow are the program's",
    )


def main(argv: Sequence[str], parser: argparse.ArgumentParser) -> int:
    """Run ``offload run`` with these arguments, those after the word ``run``, and return the exit status."""
    own, rest = split(argv, _TAKE_VALUES, _BEGIN_PROGRAM)
    args = parser.parse_args(own)
    check_values(args, parser)
    if not rest:
        taken = f" ({own[-1]!r} is the value of {own[-2]})" if len(own) > 1 and own[-2] in _TAKE_VALUES else ""
        parser.error(f"name a program: a file of Python, -m MODULE or -c CODE{taken}")
    program = _program(rest, parser)
    try:
        _prepare(args)
        sanitize.prepare(args, parser, rest)
    except (OffloadError, OSError) as error:
        parser.error(str(error))
    if not args.sanitize:
        return run(program)
    with sanitize.tracked_program(program.kind, program.name):
        return run(program)


def split(
    argv: Sequence[str], take_values: Container[str], begin_program: Container[str] = ()
) -> tuple[list[str], list[str]]:
    """Split the arguments into the options of the command, and the program with everything that follows.

    Parameters
    ----------
    argv : sequence of str
        The arguments.
    take_values, begin_program : container of str
        The options with a value, and those that name a program.
    """
    at = 0
    while at < len(argv):
        word = argv[at]
        if word == "--":
            return [*argv[:at]], [*argv[at + 1 :]]
        if word in begin_program or not word.startswith("-") or word == "-":
            break
        at += 2 if word in take_values and at + 1 < len(argv) and argv[at + 1] != "--" else 1
    return [*argv[:at]], [*argv[at:]]


def check_values(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """End with status 2 if an option has an empty value."""
    for name, value in vars(args).items():
        if value == "" or (isinstance(value, list) and "" in value):
            parser.error(f"argument --{name}: it is empty; give a value, or leave the option out")


def file_program(words: Sequence[str], parser: argparse.ArgumentParser, otherwise: str = "") -> GivenProgram:
    """Return the program in a file; end with status 2 if there is none, and say what to do ``otherwise``."""
    name = words[0]
    path = Path(name)
    try:
        if path.is_dir():
            parser.error(f"{name!r} is a folder; name a file of Python{otherwise}")
        if not path.exists():
            parser.error(f"{name!r} does not exist; name a file of Python")
        with path.open("rb") as file:
            if file.read(4) == _ARCHIVE or path.suffix == ".pyc":
                parser.error(f"{name!r} has no source code; name a file of Python source{otherwise}")
    except (OSError, ValueError) as error:
        parser.error(f"{name!r} cannot be read: {error}")
    return GivenProgram("file", name, [*words[1:]])


def _program(words: list[str], parser: argparse.ArgumentParser) -> GivenProgram:
    """Return the program that is named, which exists; end with status 2 otherwise."""
    first, rest = words[0], words[1:]
    if first not in _BEGIN_PROGRAM:
        return file_program(words, parser, ", or use -m MODULE")
    if not rest:
        parser.error(f"argument {first}: it needs a value")
    return GivenProgram(first, rest[0], rest[1:])


def _prepare(args: argparse.Namespace) -> None:
    """Check the options, and carry out those that come before the program."""
    # Several ranks or processes would write the same file; OFFLOAD_TRACE knows the sign too.
    for name in ("trace", "graph"):
        path = getattr(args, name)
        setattr(args, name, path and path.replace("%p", str(os.getpid())))
    files = [path for path in (args.trace, args.graph) if path is not None]
    if args.trace is not None:
        check_suffix(args.trace, TRACE_SUFFIXES, "--trace")
    if args.graph is not None:
        check_graph(args.graph)
    for path in files:
        check_writable(path)
    if args.hang is not None:
        read_settings({"OFFLOAD_HANG_S": args.hang})  # it is a number
        os.environ["OFFLOAD_HANG_S"] = args.hang
    if args.devices is not None:
        os.environ["OFFLOAD_DEVICES"] = args.devices
    Runtime.checks_always = args.check
    if args.trace is not None:
        reporting.trace_process(args.trace)
    if args.graph is not None:
        from offload.cli.fences import FenceLog

        reporting.log(wants_kinds=True)
        fences = FenceLog()
        observing.attach(fences)
        path = os.path.abspath(args.graph)  # noqa: PTH100  # a link stays one; the program may change its folder
        reporting.add(f"the graph {args.graph}", partial(_write_graph, path, fences))
    if args.profile:
        reporting.add("the profile", _print_profile)
    if args.live:
        from offload.runtime.live import LiveView

        registry.at_end.insert(0, LiveView().end)


def check_graph(path: str) -> None:
    """Raise `UnsupportedError` if a picture cannot be made in the format that a file's suffix names."""
    from offload.views.files import WRITERS, writer_for

    check_suffix(path, sorted(WRITERS), "--graph")
    if path.lower().endswith((".png", ".pdf")):  # others need no program
        writer_for(Path(path))(Graph())


def _write_graph(path: str, fences: FenceLog, log: TaskLog) -> None:
    from offload.reports.graphs import graph_of
    from offload.reports.records import kinds_of, records
    from offload.views.files import visualize

    visualize(graph_of(records(log), kinds_of(log), fences.fences()), path)


def _print_profile(log: TaskLog) -> None:
    from offload.cli.output import console
    from offload.reports.profile import profile
    from offload.reports.records import records

    with any_text():
        console(stderr=True).print(profile(records(log)))


def run(program: GivenProgram) -> int:
    """Run a program as Python does; return its exit status."""
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    try:
        _execute(program, module)
    except SystemExit as stop:
        return _status_of(stop.code)
    except BaseException as error:  # noqa: BLE001  # as the interpreter does
        try:
            _show(error)
        except SystemExit as stop:  # of the program's `sys.excepthook`
            return _status_of(stop.code)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _execute(program: GivenProgram, module: types.ModuleType) -> None:
    first = 0 if sys.flags.safe_path or not sys.path else 1
    match program.kind:
        case "-m":
            sys.argv = ["-m", *program.args]
            sys.path[:first] = [os.getcwd()] * first  # noqa: PTH109  # what Python puts there
            runpy._run_module_as_main(program.name)  # type: ignore[attr-defined]  # noqa: SLF001  # what ``python -m`` calls
        case "-c":
            sys.argv = ["-c", *program.args]
            sys.path[:first] = [""] * first
            module.__loader__ = BuiltinImporter  # what Python puts there
            exec(compile(program.name, "<string>", "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # that is the command
        case _:
            path = os.path.abspath(program.name)  # noqa: PTH100  # Python does not follow a link here
            sys.argv = [program.name, *program.args]
            sys.path[:first] = [os.path.dirname(os.path.realpath(path))] * first  # noqa: PTH120  # but here
            module.__file__ = path
            module.__loader__ = SourceFileLoader("__main__", path)
            module.__dict__["__cached__"] = None
            exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # the same


def _status_of(code: Any) -> int:
    """Return the exit status of `sys.exit`, as Python has it."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    if sys.stderr is not None:
        sys.stderr.write(f"{code}\n")
    return 1


def _show(error: BaseException) -> None:
    """Print the traceback of the program, without the frames that run it."""
    _leave_out_own(error)
    _leave_out_tracking(error, set())
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as failure:  # noqa: BLE001  # as the interpreter does
        _leave_out_own(failure)
        failure.__context__ = None  # the interpreter has handled the error by then
        for heading, one in (("Error in sys.excepthook:", failure), ("\nOriginal exception was:", error)):
            if sys.stderr is not None:
                sys.stderr.write(f"{heading}\n")
            sys.__excepthook__(type(one), one, one.__traceback__)


def _leave_out_own(error: BaseException) -> None:
    """Take the frames that run the program out of a traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
        trace = trace.tb_next
    error.__traceback__ = trace


def _leave_out_tracking(error: BaseException | None, seen: set[int]) -> None:
    """Take the frames that watch arrays and imports out of the tracebacks of an exception and of its causes."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    kept = []
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_TRACKING):
            kept.append(trace)
        trace = trace.tb_next
    before = None
    for one in reversed(kept):
        one.tb_next = before
        before = one
    error.__traceback__ = before
    for other in (error.__cause__, error.__context__, *getattr(error, "exceptions", ())):
        _leave_out_tracking(other, seen)
