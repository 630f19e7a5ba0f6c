"""The command ``offload``: ``run``, ``demo``, ``bench``, ``info`` and ``cache``."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import offload as omp
from offload.cli.output import any_text, drop_unwritable, flush
from offload.cli.ranks import printed_once
from offload.errors import OffloadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SIGPIPE = 13  # what would end a program that does not look; not every system has the signal
_RUN = (
    "Run a program as `python PROGRAM ARGUMENT ...` does, and show what it does. The options apply to every runtime "
    "that the program opens, and come before the program; `--` may separate the two."
)
_PORT = (
    "Run a CuPy program that uses streams and events with a stand-in for cupy and cupyx. Report races, reads of "
    "unwritten memory and needless synchronisation by line. The options come before the program; `--` may separate the "
    "two."
)
_NEGATIVE = re.compile(r"-\d.*")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default those of the process.

    Returns
    -------
    int
        0; 1 where a check failed; 2 for a wrong argument, with a message on stderr; 130 after Ctrl-C, 143 after
        SIGTERM, 141 if the reader of the output has gone. Of ``offload run``, the status of the program.
    """
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] in {"run", "port"}:  # the program's streams, signals and arguments are its own
        return _run_program(words[0], words[1:])
    with any_text():
        try:
            status = _run(argv)
            flush()
        except BaseException as error:  # noqa: BLE001  # raised by `_told` if it is none of ours
            status = _told(error)
        finally:
            drop_unwritable()
    return status


def _run_program(command: str, words: Sequence[str]) -> int:
    from offload.cli import port, run

    is_port = command == "port"
    description = _PORT if is_port else _RUN
    try:
        parser = argparse.ArgumentParser(prog=f"offload {command}", description=description, allow_abbrev=False)
        if is_port:
            port.add_arguments(parser)
            return port.main(words, parser)
        run.add_arguments(parser)
        return run.main(words, parser)
    except SystemExit as stop:  # argparse's way to say what is wrong, or to have helped
        return stop.code if isinstance(stop.code, int) else 2


def _run(argv: Sequence[str] | None) -> int:
    try:
        with printed_once(sys.argv[1:] if argv is None else argv):
            args = _parse(argv)
    except SystemExit as stop:  # argparse's way to say what is wrong, or to have helped
        return stop.code if isinstance(stop.code, int) else 2
    with _sigterm_as_exit():
        return int(args.run(args))


def _told(error: BaseException) -> int:
    """Print why a command ended and return its status; raise the error if it is a bug of the program."""
    failures = _leaves(error)
    if any(isinstance(failure, KeyboardInterrupt) for failure in failures):
        _tell("interrupted")
        return 130
    stops = [failure for failure in failures if isinstance(failure, SystemExit)]
    if stops:
        _tell("terminated")
        return int(stops[0].code or 0)
    if any(isinstance(failure, BrokenPipeError) for failure in failures):  # who reads our output has read enough
        return 128 + _SIGPIPE
    if not all(isinstance(failure, (OffloadError, OSError)) for failure in failures):
        raise error
    for failure in failures:
        _tell(f"error: {failure}")
    return 2


def _tell(text: str) -> None:
    if sys.stderr is not None:
        with suppress(OSError):  # nobody reads it
            sys.stderr.write(f"offload: {text}\n")


def _leaves(error: BaseException) -> list[BaseException]:
    """Return the failures that a group holds, or the one that this is: a wait raises those of several tasks."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


@contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    """Let SIGTERM end the block as an exception does, with its open files closed and its temporary files removed."""
    if threading.current_thread() is not threading.main_thread():  # only that one may say what a signal does
        yield
        return

    def stop(number: int, _: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the cleanup
        sys.exit(128 + number)

    former = signal.getsignal(signal.SIGTERM)
    former = signal.SIG_DFL if former is None else former
    try:
        signal.signal(signal.SIGTERM, stop)
        yield
        signal.signal(signal.SIGTERM, former)
    except BaseException:  # `stop` may have raised in the line before, too: then a SIGTERM is ignored by now
        signal.signal(signal.SIGTERM, former)
        raise


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments; show the subcommand's usage for an unknown one."""
    parser = _parser()
    args, unknown = parser.parse_known_args(_joined(sys.argv[1:] if argv is None else argv))
    command = getattr(args, "parser", parser)
    if unknown:
        command.error(f"unrecognized arguments: {' '.join(unknown)}")
    for name, value in vars(args).items():
        if value == "":
            command.error(f"argument --{name.replace('_', '-')}: it is empty; give a value, or leave the option out")
    return args


def _joined(argv: Sequence[str]) -> list[str]:
    """Join each argument that looks like a negative number to the option before it, as argparse requires."""
    joined: list[str] = []
    for text in argv:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and _NEGATIVE.fullmatch(text):
            joined[-1] += f"={text}"
        else:
            joined.append(text)
    return joined


def _parser() -> argparse.ArgumentParser:
    from offload.cli import cache, info
    from offload.cli.bench import command as bench
    from offload.cli.demo import fft3d

    parser = argparse.ArgumentParser(
        prog="offload",
        description="OpenMP's offload and tasking model for Python. The commands run a program "
        "and show what it does, show the devices of this machine, run a demo, and measure performance.",
        epilog="`offload COMMAND --help` describes a command; `python -m offload` is the same as `offload`.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"offload {omp.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    commands.add_parser("run", help="run a program, and show what it does: traces, profiles, a live view")
    commands.add_parser("port", help="run a CuPy program with streams, and report races and needless synchronisation")

    demo = commands.add_parser(
        "demo",
        help="run a program on real input",
        description="Run a program on real input, time it, and check the result.",
    )
    demos = demo.add_subparsers(metavar="NAME", required=True)
    one = demos.add_parser(
        "fft3d", help="a 3-D FFT of a field that may be larger than the device's memory", allow_abbrev=False
    )
    fft3d.add_arguments(one)
    one.set_defaults(run=fft3d.run, parser=one)

    one = commands.add_parser("bench", help="check that this machine performs as expected", allow_abbrev=False)
    bench.add_arguments(one)
    one.set_defaults(run=bench.run, parser=one)

    one = commands.add_parser(
        "info",
        help="show devices, CuPy, the driver, the C compiler and settings",
        description="Show the devices and settings that a runtime gets on this machine, and the versions of CuPy, the "
        "CUDA driver and the C compiler.",
    )
    info.add_arguments(one)
    one.set_defaults(run=info.run, parser=one)

    one = commands.add_parser(
        "cache",
        help="show or empty the cache of compiled loops",
        description="Show the folder that keeps compiled loops, with the number of files and their total size, or "
        "remove the files.",
        allow_abbrev=False,
    )
    cache.add_arguments(one)
    one.set_defaults(run=cache.run, parser=one)
    return parser
