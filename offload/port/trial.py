"""Runs of a program and of its task form, each in a fresh process.

`observe` runs the original on the stand-in, with marks (`offload.port.marks`). `rehearse` runs the task form with the
library: its graph is recorded, the bytes of each copy to the host are noted, and the sanitizer watches. Both return
the text that the program printed. A program that cannot be run again in this way has no task form.
"""

from __future__ import annotations

import builtins
import hashlib
import linecache
import os
import pickle
import subprocess
import sys
import tempfile
import types
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.port.marks import RECORDER, MarkedRun, MarkRecorder, marked, numbered
from offload.port.program import ProgramText, program_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offload.port.log import PortLog

VALUE_CALLS: Final = ("get", "item", "__bool__", "__index__")
"""Methods of a simulated device's array that bring data to the host at once."""

_SECONDS: Final = 600.0
"""How long a run may take at most."""


@dataclass(slots=True)
class TrialEnd:
    """How a run ended."""

    error: str = ""  # the error that the program raised, or ""
    line: int = 0  # where, in its file
    printed: bytes = b""


@dataclass(slots=True)
class Observation(TrialEnd):
    """The marked run of the original."""

    log: PortLog | None = None
    run: MarkedRun = field(default_factory=MarkedRun)
    prints: list[tuple[int, int]] = field(default_factory=list)  # how many lines had been printed, and the mark then

    def mark_of_line(self, number: int) -> int:
        """Return the mark that was current when a line of the output was printed; -1 for none."""
        found = [mark for done, mark in self.prints if done <= number]
        return found[-1] if found else -1


@dataclass(slots=True)
class Rehearsal(TrialEnd):
    """The run of a task form."""

    nodes: list[tuple[int, str]] = field(default_factory=list)  # the line and the directive of each task, in order
    edges: list[tuple[int, int]] = field(default_factory=list)
    arrived: list[tuple[int, bytes]] = field(default_factory=list)  # by copies to the host: line, digest of the bytes
    values: list[bytes] = field(default_factory=list)  # digests of the values that other calls brought to the host
    findings: list[tuple[str, int, int]] = field(default_factory=list)  # of the sanitizer: rule and lines


# -- the process that asks -----------------------------------------------------------------------------


def observe(path: str, argv: Sequence[str], on: str, access: Sequence[Any] = ()) -> Observation:
    """Run the original with marks."""
    result = _fresh("observed", {"path": path, "argv": list(argv), "on": on, "access": list(access)}, on)
    return result if isinstance(result, Observation) else Observation(str(result))


def rehearse(path: str, text: str, argv: Sequence[str], on: str) -> Rehearsal:
    """Run a task form that is not written yet as the file ``path``."""
    result = _fresh("rehearsed", {"path": path, "text": text, "argv": list(argv)}, on)
    return result if isinstance(result, Rehearsal) else Rehearsal(str(result))


def _fresh(name: str, payload: dict[str, Any], on: str) -> TrialEnd | str:
    """Call a function of this module in a fresh process; return its result, or a text if the process failed."""
    root = str(Path(__file__).resolve().parents[2])
    with tempfile.TemporaryDirectory(prefix="offload-port-") as folder:
        given, made = Path(folder, "given"), Path(folder, "made")
        given.write_bytes(pickle.dumps((name, payload)))
        code = f"import sys; sys.path.append({root!r}); from offload.port.trial import serve; serve(*sys.argv[1:])"
        try:
            done = _python("-c", code, str(given), str(made), env=_environment(on, name))
        except subprocess.TimeoutExpired:
            return f"it did not end within {_SECONDS:.0f} s"
        if not made.exists():
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else f"the process ended with status {done.returncode}"
        result: TrialEnd = pickle.loads(made.read_bytes())  # noqa: S301  # what `serve` wrote
        result.printed = done.stdout
        return result


def _python(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603  # this interpreter, and the user's own program
        [sys.executable, *words], stdin=subprocess.DEVNULL, capture_output=True, env=env, timeout=_SECONDS, check=False
    )


def _environment(on: str, name: str) -> dict[str, str]:
    """Return the environment of a fresh process: without options that write files or stop the run."""
    found = {key: value for key, value in os.environ.items() if not key.startswith("OFFLOAD_")}
    for key in ("OFFLOAD_CACHE_DIR", "OFFLOAD_CC", "OFFLOAD_SEED", "OFFLOAD_HANG_S"):
        if key in os.environ:
            found[key] = os.environ[key]
    if name == "rehearsed":
        found["OFFLOAD_DEVICES"] = on
        if on == "sim":
            found["OFFLOAD_SANITIZE"] = "1"
    return found


# -- the fresh process ---------------------------------------------------------------------------------


def serve(given: str, made: str) -> None:
    """Carry out a request, and write its result."""
    name, payload = pickle.loads(Path(given).read_bytes())  # noqa: S301  # what `_fresh` wrote
    functions: dict[str, Callable[..., TrialEnd]] = {"observed": _observed, "rehearsed": _rehearsed}
    result = functions[name](**payload)
    sys.stdout.flush()
    Path(made).write_bytes(pickle.dumps(result))


def _observed(path: str, argv: list[str], on: str, access: list[Any]) -> Observation:
    from offload.port.arrays import PortArray
    from offload.port.running import recorded
    from offload.sanitizer.tracked import set_sink

    program = ProgramText(path, program_text(path))
    statements = numbered(program)
    code = compile(marked(program, statements), path, "exec", dont_inherit=True)
    result = Observation()
    with recorded(path, on=on, access=access, wants_digests=True) as past:  # type: ignore[arg-type]  # of two words
        recorder: Any = set_sink(None)
        set_sink(recorder)

        def section_of(value: Any) -> Any:
            if isinstance(value, np.ndarray):
                return recorder.host_part(value)
            return value.whole_part if isinstance(value, PortArray) else None

        marks = MarkRecorder(program, statements, section_of, past.log)
        _note_prints(result, marks)
        _run(code, path, path, argv, result, {RECORDER: marks})
    marks.settle()
    result.log, result.run = past.log, marks.run
    return result


def _rehearsed(path: str, text: str, argv: list[str]) -> Rehearsal:
    import offload
    from offload.runtime.current import here

    result = Rehearsal()
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    with ExitStack() as stack:
        if os.environ.get("OFFLOAD_SANITIZE"):
            from offload.sanitizer.imports import tracked_imports

            stack.enter_context(tracked_imports(Path(path).resolve().parent))
        _note_copies(stack, result, path)
        if os.environ["OFFLOAD_DEVICES"] == "sim":
            _note_values(stack, result)
        with offload.record() as graph:
            _run(compile(text, path, "exec", dont_inherit=True), path, path, argv, result, {})
            _finish(offload.taskwait, path, result)
        _note_graph(graph, path, result)
        result.findings = [
            (finding.rule, finding.first.line, finding.second.line if finding.second else 0)
            for finding in here().runtime.findings
        ]
    return result


def _run(code: Any, path: str, name: str, argv: list[str], result: TrialEnd, names: dict[str, Any]) -> None:
    """Run code as Python runs a file."""
    module = types.ModuleType("__main__")
    module.__dict__.update({"__builtins__": builtins, "__file__": path, "__cached__": None, **names})
    sys.modules["__main__"] = module
    sys.argv = [name, *argv]
    sys.path[0] = str(Path(path).resolve().parent)
    _finish(lambda: exec(code, module.__dict__), path, result)  # noqa: S102  # that is the point


def _finish(action: Callable[[], Any], path: str, result: TrialEnd) -> None:
    """Call a function; note an error of the program."""
    try:
        action()
    except SystemExit as stop:
        if stop.code not in {None, 0}:
            result.error = result.error or f"it ended with status {stop.code}"
    except BaseException as error:  # noqa: BLE001  # a program may raise any
        if not result.error:
            result.line, result.error = _described(error, path)


def _described(error: BaseException, path: str) -> tuple[int, str]:
    """Return the line of the program's file where an error came from, and its text."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename == path:
        line = error.lineno or line
    return line, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _note_prints(result: Observation, marks: MarkRecorder) -> None:
    """Note which statement printed each line of the output."""
    plain = sys.stdout.write
    done = [0]

    def write(text: str) -> int:
        result.prints.append((done[0], marks.current))
        done[0] += text.count("\n")
        return plain(text)

    sys.stdout.write = write  # type: ignore[method-assign]  # `print` calls it


# -- notes of a rehearsal ----------------------------------------------------------------------------


def digest(array: Any) -> bytes:
    """Return the digest of an array's bytes, as the recorder of the stand-in makes it."""
    plain = np.ascontiguousarray(np.asarray(array).view(np.ndarray))
    return hashlib.blake2b(plain.tobytes(), digest_size=16).digest()


def _note_copies(stack: ExitStack, result: Rehearsal, path: str) -> None:
    """Have a task after each copy to the host note the bytes."""
    import offload

    plain = offload.target_memcpy_rect_async

    def target_memcpy_rect_async(dst: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
        task = plain(dst, src, *args, **kwargs)
        if isinstance(dst, np.ndarray):
            line = _line_in(path)
            place = len(result.arrived)
            result.arrived.append((line, b""))

            def note() -> None:
                result.arrived[place] = (line, digest(dst))

            # A program that waits for the copy has to wait for the note, before it overwrites the bytes. So the note is
            # ordered like the copy, as a write.
            return offload.task(depend=[offload.inout(dst)], name="the bytes that arrived")(note)()
        return task

    offload.target_memcpy_rect_async = target_memcpy_rect_async
    stack.callback(setattr, offload, "target_memcpy_rect_async", plain)


def _line_in(path: str) -> int:
    frame = sys._getframe(1)  # noqa: SLF001  # the program's is further out
    while frame.f_back is not None and frame.f_code.co_filename != path:
        frame = frame.f_back
    return frame.f_lineno


def _note_values(stack: ExitStack, result: Rehearsal) -> None:
    """Note the bytes that methods of the simulated device's arrays bring to the host."""
    from offload.devices.sim.array import SimArray

    depth = [0]

    def noting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            depth[0] += 1
            try:
                value = plain(self, *args, **kwargs)
            finally:
                depth[0] -= 1
            if not depth[0]:
                result.values.append(digest(np.asarray(value, dtype=self.dtype)))
            return value

        return method

    for name in VALUE_CALLS:
        plain = getattr(SimArray, name)
        setattr(SimArray, name, noting(plain))
        stack.callback(setattr, SimArray, name, plain)


def _note_graph(graph: Any, path: str, result: Rehearsal) -> None:
    numbers = {id(node): index for index, node in enumerate(graph.tasks)}
    for node in graph.tasks:
        file, _, line = (node.location or "").rpartition(":")
        result.nodes.append((int(line) if file == path and line.isdigit() else 0, node.directive))
    for edge in graph.edges:
        result.edges.append((numbers[id(edge.source)], numbers[id(edge.target)]))
