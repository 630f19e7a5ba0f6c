"""The task form of a CuPy program: ``offload port --emit``.

Theory of operation
-------------------
1. `offload.port.program` and `offload.port.uses` read the text: which names hold streams, and which statements only
   handle them.
2. `offload.port.trial` runs the program again in a fresh process, with a mark before each statement.
3. `offload.port.parts` decides which statements become regions and copies, and finds the items of their clauses in the
   accesses of the run. `offload.port.waits` finds where the host has to wait.
4. `offload.port.writing` writes the text.
5. The text is run in a fresh process, and `offload.port.checks` compares.

Each step may find obstacles. A program with an obstacle has no task form, and the reasons name the lines.
"""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from offload.port.analysis import analyse
from offload.port.checks import FormCheck, at_line
from offload.port.facts import Recorded
from offload.port.log import HOST, NULL
from offload.port.marks import numbered
from offload.port.modules import module_names
from offload.port.parts import FormParts
from offload.port.program import ProgramText, program_text
from offload.port.trial import observe, rehearse
from offload.port.uses import Obstacle, StreamUses
from offload.port.waits import WaitPlan
from offload.port.writing import FormWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.port.log import PortLog
    from offload.port.modules import ModuleNames
    from offload.port.trial import Observation

_KERNELS: Final = frozenset(
    f"cupy.{name}" for name in ("RawKernel", "RawModule", "ElementwiseKernel", "ReductionKernel", "fuse")
)
"""Names whose code the simulated device does not carry out."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """A task form, or why there is none.

    Attributes
    ----------
    text : str or None
        The form.
    reasons : list of str
        The obstacles, each with its line; empty if there is a form.
    """

    text: str | None
    reasons: list[str] = field(default_factory=list)


def emit(
    program_path: str,
    argv: Sequence[str],
    log: PortLog | None = None,
    on: str = "sim",
    *,
    access: Sequence[Any] = (),
    into: str | None = None,
) -> Emitted:
    """Return the task form of a program that has been recorded, or the reasons for which it has none.

    Parameters
    ----------
    program_path : str
        The program's file.
    argv : sequence of str
        Its arguments.
    log : PortLog, optional
        The record of its run, which has no races.
    on : str
        ``"sim"`` or ``"cuda"``.
    access : sequence of AccessOption
        The accesses of kernels.
    into : str, optional
        The file that the form is meant for; by default one in the program's folder.

    Returns
    -------
    Emitted
        The form has passed the checks: the same bytes at each copy to the host, the same printed text, and a graph that
        orders each data dependence.
    """
    path = os.path.abspath(program_path)  # noqa: PTH100  # as Python names the file
    try:
        program = ProgramText(path, program_text(path))
    except (SyntaxError, UnicodeDecodeError) as error:
        return Emitted(None, [f"{at_line(getattr(error, 'lineno', 0) or 0)}{error}"])
    names = module_names(program)
    uses = StreamUses(program, names)
    known = {obstacle.line for obstacle in uses.obstacles}
    of_log = [] if log is None else _of_log(log, path)
    obstacles = [*uses.obstacles, *(obstacle for obstacle in of_log if obstacle.line not in known)]
    if obstacles:
        return Emitted(None, _reasons(obstacles))
    made = _Emission(program, uses, names, argv, access, into or _beside(path))
    return made.emitted([on] if on == "sim" or made.has_kernels else ["sim", on])


class _Emission:
    """A task form in the making.

    Parameters
    ----------
    program, uses, names
        The program's text.
    argv, access
        Its arguments, and the accesses of kernels.
    into : str
        The file of the form.
    """

    def __init__(
        self,
        program: ProgramText,
        uses: StreamUses,
        names: ModuleNames,
        argv: Sequence[str],
        access: Sequence[Any],
        into: str,
    ) -> None:
        self.program = program
        self.uses = uses
        self.names = names
        self.argv = argv
        self.access = access
        self.into = into

    @property
    def has_kernels(self) -> bool:
        """Whether the program has CUDA source, which the simulated device does not carry out."""
        nodes = self.program.parents
        return any(
            isinstance(node, ast.Attribute | ast.Name) and self.program.dotted(node) in _KERNELS for node in nodes
        )

    def emitted(self, targets: Sequence[str]) -> Emitted:
        """Return the form, after the checks on each target."""
        text: str | None = None
        for target in targets:
            path = self.program.path
            observed = observe(path, self.argv, target, self.access)
            if observed.error or observed.log is None:
                text = f"{at_line(observed.line)}the program fails when it runs again on {target}: {observed.error}"
                return Emitted(None, [text])
            obstacles = _of_log(observed.log, path)
            if obstacles:
                return Emitted(None, _reasons(obstacles))
            made = self._checked(observed, target, text)
            if made.text is None:
                return made
            text = made.text
        return Emitted(text)

    def _checked(self, observed: Observation, target: str, before: str | None) -> Emitted:
        """Return the form for a run of the original, if the form does the same on a target."""
        assert observed.log is not None
        parts = FormParts(Recorded(self.program, self.uses, numbered(self.program), observed.log, observed.run))
        if self.uses.obstacles:
            return Emitted(None, _reasons(self.uses.obstacles))
        waits = WaitPlan(parts, cache(partial(_redundant, observed.log, self.program.path, target)))
        if self.uses.obstacles:
            return Emitted(None, _reasons(self.uses.obstacles))
        form = FormWriter(parts, waits, self.names).form()
        if self.uses.obstacles:
            return Emitted(None, _reasons(self.uses.obstacles))
        if before is not None and form.text != before:
            return Emitted(None, [f"the runs on the simulated device and on {target} give different task forms"])
        rehearsed = rehearse(self.into, form.text, self.argv, target)
        check = FormCheck(form, waits, observed, rehearsed)
        return Emitted(None, check.reasons) if check.reasons else Emitted(form.text)


def obstacles_in(program_path: str) -> list[str]:
    """Return the reasons that the text of a program alone shows, for a program whose run failed."""
    path = os.path.abspath(program_path)  # noqa: PTH100  # as Python names the file
    try:
        program = ProgramText(path, program_text(path))
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []
    uses = StreamUses(program, module_names(program))
    return _reasons(uses.obstacles)


def _redundant(log: PortLog, path: str, target: str) -> set[int]:
    """Return the lines of the calls that the original does not need."""
    return {entry.line for entry in analyse(log, path, target).redundant if entry.file == path}


def _beside(path: str) -> str:
    file = Path(path)
    return str(file.with_name(f"{file.stem}_tasks.py"))


def _of_log(log: PortLog, path: str) -> list[Obstacle]:
    """Return the obstacles that a record shows."""
    found = [
        Obstacle(place.line if place.file == path else 0, _placed(place.file, path, place.line, text))
        for place, text in log.obstacles.items()
    ]
    for operation in log.operations:
        place = operation.place
        if operation.kind in {"record", "wait_event", "stream wait", "event wait"} and place.file != path:
            text = "streams are used in another file; a task form replaces one file"
            found.append(Obstacle(0, _placed(place.file, path, place.line, text)))
        if operation.thread != "MainThread" and operation.kind != "host":
            found.append(Obstacle(place.line, "several threads work with streams; a task form is for one"))
            break
    for kernel, place in log.unchecked_kernels.items():
        text = (
            f"kernel `{kernel}` is not carried out on the simulated device, so nothing can be checked; use --on cuda, "
            "or for this run replace it by a function with the same arguments that does the same with array operations"
        )
        found.append(Obstacle(place.line if place.file == path else 0, _placed(place.file, path, place.line, text)))
    if not any(operation.stream not in {HOST, NULL} for operation in log.operations):
        found.append(Obstacle(1, "the program uses no stream, so there is nothing to convert"))
    return found


def _placed(file: str, path: str, line: int, text: str) -> str:
    return text if file == path else f"{file}:{line}: {text}"


def _reasons(obstacles: Iterable[Obstacle]) -> list[str]:
    """Return the texts of obstacles, in the order of their lines."""
    ordered = sorted(dict.fromkeys(obstacles), key=lambda one: one.line)
    return [f"{at_line(one.line)}{one.text}" for one in ordered]
