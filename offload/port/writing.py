"""The text of a task form.

Statements that stay keep their text, their comments and their formatting; the indentation changes where a
``with STREAM:`` around them is gone, or where code of the module has become a function. Each part that is new ends with
a comment that names the line from which it comes.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.port.chains import is_pure
from offload.port.pieces import Role
from offload.port.program import FUNCTIONS, SYNC, has_sync, string_lines
from offload.port.regions import RegionNames
from offload.port.statements import suites_of
from offload.port.uses import PINNED, StatementUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from offload.port.modules import ModuleNames
    from offload.port.parts import FormParts
    from offload.port.pieces import BlockPart, CopyPart
    from offload.port.program import ProgramText
    from offload.port.waits import HostWait, WaitPlan

_WIDTH: Final = 120
_STEP: Final = "    "
_DIRECTIVES: Final = "{} {}import directives, omp"


class FormLine(NamedTuple):
    """A line of a task form."""

    text: str
    origin: int = 0  # the line of the program that it comes from; 0 for none
    part: ast.stmt | None = None  # the statement that became this block, copy or wait


@dataclass(frozen=True, slots=True)
class TaskForm:
    """A task form."""

    lines: list[FormLine]

    @property
    def text(self) -> str:
        """Its text."""
        return "".join(f"{line.text}\n" for line in self.lines)

    def origin_of(self, number: int) -> int:
        """Return the line of the program that a line of the form comes from; the last one before it that has one."""
        for line in reversed(self.lines[: max(0, number)]):
            if line.origin:
                return line.origin
        return 0


class FormWriter:
    """Writes a task form."""

    def __init__(self, parts: FormParts, waits: WaitPlan, names: ModuleNames) -> None:
        self.parts = parts
        self.waits = waits
        self.program = parts.program
        self.uses = parts.uses
        self.names = names
        self.frozen = string_lines(self.program.text)
        self._touched: dict[ast.stmt, bool] = {}
        self.members = {member: block for block in parts.blocks.values() for member in block.members}
        self.decorated = self._decorated()
        self._is_wrapped = False

    def form(self) -> TaskForm:
        """Return the task form."""
        body = self.program.tree.body
        lines = self._imports_first(self.suite(body, "", 0, is_top=True))
        last = body[-1].end_lineno or 0
        lines += [FormLine(line, last + k + 1) for k, line in enumerate(self.program.lines[last:])]
        while lines and not lines[-1].text:
            lines.pop()
        return TaskForm(lines)

    def _decorated(self) -> set[ast.AST]:
        """Return the functions that have blocks."""
        program = self.program
        return {program.function_of(first) for first in self.parts.blocks} - {program.tree}

    # -- suites ------------------------------------------------------------------------------------
    def suite(self, body: list[ast.stmt], indent: str, before: int, *, is_top: bool = False) -> list[FormLine]:
        """Return the lines of a suite whose statements are indented so; ``before`` is the last line that is done."""
        region = self._region(body)
        lines: list[FormLine] = []
        index = 0
        while index < len(body):
            node = body[index]
            if region is not None and index == region[0]:
                lines += self._wrapped(body[region[0] : region[1] + 1], indent, before)
                index = region[1] + 1
                before = body[region[1]].end_lineno or 0
                continue
            lines += self._trivia(before, first_line(node), indent, node)
            block = self.members.get(node)
            if block is not None:
                lines += self._block(block, indent)
                index += len(block.members)
                node = block.members[-1]
            else:
                lines += self.statement(node, indent)
                index += 1
            before = max(before, node.end_lineno or 0)
        return lines

    def _trivia(self, before: int, until: int, indent: str, node: ast.stmt) -> list[FormLine]:
        """Return comments and blank lines between two statements, indented as the second one is."""
        shift = len(indent) - self._column(node)
        lines = self.program.lines[before : until - 1]
        return [FormLine(self._shifted(line, shift), before + k + 1) for k, line in enumerate(lines)]

    def _column(self, node: ast.stmt) -> int:
        line = self.program.lines[first_line(node) - 1]
        return len(line) - len(line.lstrip(" \t"))

    @staticmethod
    def _shifted(line: str, shift: int) -> str:
        if not line.strip():
            return ""
        if shift >= 0:
            return " " * shift + line
        return line[min(-shift, len(line) - len(line.lstrip(" "))) :]

    # -- statements --------------------------------------------------------------------------------
    def statement(self, node: ast.stmt, indent: str) -> list[FormLine]:
        """Return the lines of one statement, with the waits around it."""
        wait = self.waits.before.get(node)
        lines = [] if wait is None else [self._host_wait(wait, node, indent)]
        if node in self.waits.device_before:
            lines.append(self._synchronize(node, indent))
        lines += self._statement(node, indent)
        if node in self.waits.device_after:
            lines.append(self._synchronize(node, indent))
        return lines

    def _host_wait(self, wait: HostWait, node: ast.stmt, indent: str) -> FormLine:
        if not wait.items:
            return self._taskwait(node, indent)
        name = self.names.offload
        items = []
        for word, modes in (("in_", {"in"}), ("out", {"out"}), ("inout", {"in", "out"})):
            texts = [text for text, found in wait.items.items() if found == modes]
            if texts:
                items.append(f"{name}.{word}({', '.join(texts)})")
        call = f"{indent}{name}.taskwait(depend=[{', '.join(items)}])"
        return FormLine(f"{call}  # line {wait.line}", node.lineno, node)

    def _taskwait(self, node: ast.stmt, indent: str) -> FormLine:
        return FormLine(f'{indent}{self.names.omp}("taskwait")  # line {node.lineno}', node.lineno, node)

    def _synchronize(self, node: ast.stmt, indent: str) -> FormLine:
        return FormLine(
            f"{indent}{self.names.offload}.device(0).synchronize()  # line {node.lineno}", node.lineno, node
        )

    def _statement(self, node: ast.stmt, indent: str) -> list[FormLine]:
        role = self.parts.roles.get(node, Role.KEEP)
        if role is Role.DROP:
            return []
        if role is Role.WAIT:
            return [self._taskwait(node, indent)] if node in self.waits.needed else []
        if role is Role.COPY:
            return self._copy(self.parts.copies[node], indent)
        if role is Role.UNWRAP:
            return self._unwrapped(node, indent)
        if self.uses.use[node] is StatementUse.IMPORT:
            return self._import(node, indent)
        if not self._is_touched(node):
            return self._verbatim(node, indent)
        if hasattr(node, "body") or isinstance(node, ast.Match):
            return self._compound(node, indent)
        if isinstance(node, ast.Assign) and (zeros := self._pinned_zeros(node)) is not None:
            name = self.program.segment(node.targets[0])
            return [
                *self._simple(node, indent, zeros),
                FormLine(f"{indent}{name}[...] = 0  # line {node.lineno}", node.lineno),
            ]
        return self._simple(node, indent, self.uses.head(node))

    def _pinned_zeros(self, node: ast.Assign) -> str | None:
        """Return the text of an assignment of a pinned array of zeros, which the next line fills; None for others."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func) as call) if self.program.dotted(
                func
            ) in {"cupyx.zeros_pinned", "cupyx.zeros_like_pinned"}:
                text = self.uses.pinned(call)
                return None if text is None else f"{name} = {text}"
        return None

    def _is_touched(self, node: ast.stmt) -> bool:
        """Tell whether a statement, or one in it, does not stay as it is."""
        found = self._touched.get(node)
        if found is None:
            found = self._touched[node] = self._is_touched_now(node)
        return found

    def _is_touched_now(self, node: ast.stmt) -> bool:
        waits = self.waits
        if self.parts.roles.get(node, Role.KEEP) is not Role.KEEP or node in self.decorated:
            return True
        if self.uses.use[node] is not StatementUse.PLAIN:
            return True
        if any(node in places for places in (waits.before, waits.device_before, waits.device_after)):
            return True
        if hasattr(node, "body") or isinstance(node, ast.Match):
            is_over_streams = isinstance(node, ast.For) and has_sync(self.program.kind(node.iter))
            if is_over_streams:
                return True
            if not isinstance(node, (ast.Match, ast.Try)) and self.uses.head(node) != self.uses.source_head(node):
                return True
            return any(self._is_touched(part) for suite in suites_of(node) for part in suite)
        return self.uses.head(node) != self.program.segment(node)

    def _verbatim(self, node: ast.stmt, indent: str) -> list[FormLine]:
        """Return the lines of a statement that does not change."""
        first, last = first_line(node), node.end_lineno or node.lineno
        if self._shares_line(node):
            return self._simple(node, indent, self.program.segment(node))
        shift = len(indent) - self._column(node)
        lines = []
        for number in range(first, last + 1):
            line = self.program.lines[number - 1]
            lines.append(FormLine(line if number in self.frozen else self._shifted(line, shift), number))
        return lines

    def _shares_line(self, node: ast.stmt) -> bool:
        """Tell whether other code stands on the first or the last line of a statement."""
        line = self.program.lines[first_line(node) - 1]
        if len(line) - len(line.lstrip(" \t")) != len(line.encode()[: node.col_offset].decode()):
            return not getattr(node, "decorator_list", None)
        return self._rest(node).lstrip().startswith(";")

    def _rest(self, node: ast.stmt) -> str:
        """Return the text after a statement on its last line."""
        line = self.program.lines[(node.end_lineno or node.lineno) - 1]
        return line.encode()[node.end_col_offset :].decode()

    def _comment(self, node: ast.stmt) -> str:
        """Return the comment at the end of a statement's last line, without the sign."""
        rest = self._rest(node).strip()
        return rest[1:].strip() if rest.startswith("#") else ""

    def _simple(self, node: ast.stmt, indent: str, text: str) -> list[FormLine]:
        """Return the lines of a simple statement with another text."""
        comment = self._comment(node)
        lines = (indent + text + (f"  # {comment}" if comment else "")).split("\n")
        shift = len(indent) - self._column(node)
        is_frozen = any(number in self.frozen for number in range(node.lineno, (node.end_lineno or node.lineno) + 1))
        rest = lines[1:] if is_frozen else [self._shifted(line, shift) for line in lines[1:]]
        return [FormLine(line, node.lineno) for line in (lines[0], *rest)]

    # -- compound statements -----------------------------------------------------------------------
    def _compound(self, node: ast.stmt, indent: str) -> list[FormLine]:
        """Return the lines of a compound statement in which something changes."""
        is_guard = self.uses.use[node] is StatementUse.GUARD
        if is_guard:  # its head mentions streams
            bodies = [self.suite(body, indent, self._head_line(body[0])) for body in suites_of(node)]
            heads: list[Callable[[], list[FormLine]]] = []
        else:
            clauses = [*self._clauses(node, indent)]
            heads, bodies = [head for head, _ in clauses], [body for _, body in clauses]
        if not any(map(_has_code, bodies)) and self._may_vanish(node):
            return [line for lines in bodies for line in lines if line.text.strip()]
        code = [line for lines in bodies for line in lines if _is_code(line)]
        if (is_guard or isinstance(node, ast.For)) and code and all(self._is_taskwait(line) for line in code):
            return [FormLine(indent + code[0].text.lstrip(), *code[0][1:])]
        lines: list[FormLine] = []
        for head, body in zip(heads, bodies, strict=True):
            lines += head()
            lines += body if _has_code(body) else [*body, FormLine(f"{indent}{_STEP}pass", node.lineno)]
        return lines

    def _is_taskwait(self, line: FormLine) -> bool:
        return line.text.lstrip().startswith(f'{self.names.omp}("taskwait")')

    def _may_vanish(self, node: ast.stmt) -> bool:
        """Tell whether a statement without any body may be left out: its head has no effect."""
        if self.uses.use[node] is StatementUse.GUARD:
            return True
        if isinstance(node, ast.If):
            return is_pure(node.test) and all(
                not isinstance(part, ast.If) or self._may_vanish(part) for part in node.orelse
            )
        if isinstance(node, ast.For):
            return self.program.kind(node.iter) == SYNC or _is_counting(self.program, node.iter)
        return isinstance(node, ast.Try)

    def _clauses(self, node: ast.stmt, indent: str) -> Iterator[tuple[Callable[[], list[FormLine]], list[FormLine]]]:
        """Yield functions that return heads (``if …:``, ``else:``, …), which may not be needed, and bodies."""
        done = 0
        if isinstance(node, ast.Match):
            yield from self._cases(node, indent)
            return
        for number, body in enumerate(suites_of(node)):
            if number and self.program.is_elif(body[0]):
                yield from self._elif(body[0], done, indent)
            else:
                head = partial(self._first_head, node, body, indent)
                if number:
                    head = partial(self._next_head, done, body[0], indent)
                yield head, self.suite(body, indent + _STEP, max(done, self._head_line(body[0])))
            done = max(part.end_lineno or 0 for part in body)

    def _cases(self, node: ast.Match, indent: str) -> Iterator[tuple[Callable[[], list[FormLine]], list[FormLine]]]:
        """Yield the heads and bodies of the cases of a `match`, whose own head comes with the first one."""
        head = FormLine(indent + self.uses.colon_head(node), node.lineno)
        done = node.subject.end_lineno or node.lineno
        for number, body in enumerate(suites_of(node)):
            case = partial(self._next_head, done, body[0], indent + _STEP)
            lines = self.suite(body, indent + 2 * _STEP, self._head_line(body[0]))
            yield (partial(_joined, [head], case) if number == 0 else case), lines
            done = max(part.end_lineno or 0 for part in body)

    def _head_line(self, first: ast.stmt) -> int:
        """Return the line before a suite's first statement and its comments: the line of the head's colon."""
        number = first_line(first) - 1
        while number > 0 and (not self.program.lines[number - 1].strip() or self._is_comment(number)):
            number -= 1
        return number if not self._is_one_line(first) else first_line(first)

    def _is_comment(self, number: int) -> bool:
        return self.program.lines[number - 1].lstrip().startswith("#")

    def _is_one_line(self, first: ast.stmt) -> bool:
        """Tell whether a suite stands on the line of its head."""
        line = self.program.lines[first_line(first) - 1]
        return bool(line.encode()[: first.col_offset].decode().strip()) and not getattr(first, "decorator_list", None)

    def _first_head(self, node: ast.stmt, body: list[ast.stmt], indent: str) -> list[FormLine]:
        text = "try:" if isinstance(node, ast.Try) else self.uses.head(node)
        lines = []
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            lines += [FormLine(f"{indent}@{self.uses.text(one)}", one.lineno) for one in node.decorator_list]
            if node in self.decorated:
                lines.append(FormLine(f"{indent}@{self.names.directives}", node.lineno))
        comment = self._head_comment(body[0])
        shift = len(indent) - self._column(node)
        first, *rest = text.split("\n")
        found = [indent + first, *(self._shifted(line, shift) for line in rest)]
        found[-1] += f"  # {comment}" if comment else ""
        return lines + [FormLine(line, node.lineno) for line in found]

    def _head_comment(self, first: ast.stmt) -> str:
        """Return the comment after the colon of a head."""
        if self._is_one_line(first):
            return ""
        line = self.program.lines[self._head_line(first) - 1]
        at = line.rfind("#")
        is_comment = at > 0 and line[:at].rstrip().endswith(":")
        return line[at + 1 :].strip() if is_comment else ""

    def _next_head(self, done: int, first: ast.stmt, indent: str) -> list[FormLine]:
        """Return the line of ``else:``, ``except …:``, ``case …:``, with the comments above it."""
        stop = self._head_line(first)
        lines = []
        for number in range(done + 1, stop + 1):
            line = self.program.lines[number - 1]
            if self._is_one_line(first) and number == stop:
                line = line.encode()[: first.col_offset].decode().rstrip()
            is_head = bool(line.strip()) and not self._is_comment(number)
            shift = len(indent) - (len(line) - len(line.lstrip())) if is_head else 0
            lines.append(FormLine(self._shifted(line, shift), number))
        return lines

    def _elif(
        self, node: ast.stmt, done: int, indent: str
    ) -> Iterator[tuple[Callable[[], list[FormLine]], list[FormLine]]]:
        lines = self.program.lines[done : node.lineno - 1]
        comments = [FormLine(line, done + k + 1) for k, line in enumerate(lines)]
        for number, (head, body) in enumerate(self._clauses(node, indent)):
            yield (partial(_joined, comments, head) if number == 0 else head), body

    def _unwrapped(self, node: ast.stmt, indent: str) -> list[FormLine]:
        """Return the lines of the block of a ``with STREAM:``."""
        head = self.uses.head(node)
        body: list[ast.stmt] = node.body  # type: ignore[attr-defined]  # a `with`
        inner = indent + _STEP if head else indent
        lines = self.suite(body, inner, self._head_line(body[0]))
        return [FormLine(indent + head, node.lineno), *lines] if head else lines

    # -- parts -------------------------------------------------------------------------------------
    def _block(self, block: BlockPart, indent: str) -> list[FormLine]:
        """Return the lines of a block of work on the device."""
        first = block.first
        parent = self.program.parents[first]
        is_whole = isinstance(parent, ast.With) and parent.body[0] is first
        number = parent.lineno if isinstance(parent, ast.With) and is_whole else first.lineno
        lines = [FormLine(f"{indent}{text}  # line {line}", line) for text, line in block.before]
        lines += self._with(block, indent, number)
        self.uses.texts = block.texts
        touched, self._touched = self._touched, {}
        try:
            lines += self._members(block.members, indent + _STEP)
        finally:
            self.uses.texts = {}
            self._touched = touched
        return lines

    def _members(self, body: list[ast.stmt], indent: str) -> list[FormLine]:
        """Return the lines of statements of a block, with the comments between them."""
        lines: list[FormLine] = []
        for earlier, node in zip((None, *body), body, strict=False):
            if earlier is not None:
                lines += self._trivia(earlier.end_lineno or 0, first_line(node), indent, node)
            lines += self._member(node, indent)
        return lines

    def _member(self, node: ast.stmt, indent: str) -> list[FormLine]:
        is_changed = any(part in self.uses.texts for part in ast.walk(node))
        if not is_changed and not hasattr(node, "body"):
            text = self.uses.text(node)
            is_changed = text != self.program.segment(node)
        if not is_changed:
            return self._verbatim(node, indent)
        if hasattr(node, "body"):
            return self._member_compound(node, indent)
        return self._simple(node, indent, self.uses.head(node))

    def _member_compound(self, node: ast.stmt, indent: str) -> list[FormLine]:
        lines: list[FormLine] = []
        done = 0
        for number, body in enumerate(suites_of(node)):
            if number and self.program.is_elif(body[0]):
                lines += self._member_compound(body[0], indent)
                continue
            lines += self._next_head(done, body[0], indent) if number else self._first_head(node, body, indent)
            lines += self._members(body, indent + _STEP)
            done = body[-1].end_lineno or 0
        return lines

    def _with(self, block: BlockPart, indent: str, number: int) -> list[FormLine]:
        clauses = []
        for word, modes in (("in", {"in"}), ("out", {"out"}), ("inout", {"in", "out"})):
            items = [item for item, found in block.modes.items() if found == modes]
            if items:
                clauses.append(f"depend({word}: {', '.join(items)})")
        pieces = [f'"{piece}"' for piece in _pieces(["target nowait", *clauses], _WIDTH - len(indent) - 16)]
        pieces = [_quoted(piece[1:-1]) for piece in pieces]
        if len(pieces) == 1:
            text = f"{indent}with {self.names.omp}({pieces[0]}):  # line {number}"
            return [FormLine(text, number, block.first)]
        lines = [f"{indent}with {self.names.omp}(", *(f"{indent}{_STEP}{piece}" for piece in pieces)]
        lines.append(f"{indent}):  # line {number}")
        return [FormLine(line, number, block.first) for line in lines]

    def _copy(self, part: CopyPart, indent: str) -> list[FormLine]:
        node, names = part.statement, self.names
        comment = self._comment(node)
        mark = f"  # line {node.lineno}" + (f": {comment}" if comment else "")
        lines = [FormLine(f"{indent}{text}  # line {node.lineno}", node.lineno) for text in part.before]
        call = f"{names.offload}.target_memcpy_rect_async("
        sides = f"{part.target_text}, {part.source_text}"
        depend = f"depend=[{names.offload}.in_({part.source_text}), {names.offload}.out({part.target_text})]"
        end = ").result()" if node in self.waits.blocking else ")"
        text = f"{indent}{call}{sides}, {depend}{end}"
        if len(text) <= _WIDTH or "\n" in text:
            return [*lines, FormLine(text + mark, node.lineno, node)]
        wrapped = [f"{indent}{call}", f"{indent}{_STEP}{sides}, {depend}", f"{indent}{end}{mark}"]
        return lines + [FormLine(line, node.lineno, node) for line in wrapped]

    # -- imports -----------------------------------------------------------------------------------
    def _import(self, node: ast.stmt, indent: str) -> list[FormLine]:
        """Return the lines that stand for an import of CuPy."""
        kept: list[str] = []
        made: list[str] = []
        namespace = f"{self.names.offload}.device(0).namespace()"
        assert isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                full = f"{node.module}.{alias.name}"
                if self._is_wanted(full):
                    made.append(f"{alias.asname or alias.name} = {_in_namespace(namespace, full)}")
            elif alias.name.partition(".")[0] not in {"cupy", "cupyx"}:
                kept.append(alias.name + (f" as {alias.asname}" if alias.asname else ""))
            elif alias.asname and self._is_wanted(alias.name):
                made.append(f"{alias.asname} = {_in_namespace(namespace, alias.name)}")
            elif not alias.asname and alias.name.startswith("cupy") and not alias.name.startswith("cupyx"):
                made.append(f"cupy = {namespace}")
        lines = [FormLine(f"{indent}import {', '.join(kept)}", node.lineno)] if kept else []
        comment = f"  # line {node.lineno}"
        found = [FormLine(f"{indent}{text}{comment}", node.lineno, node) for text in dict.fromkeys(made)]
        return lines + found

    def _is_wanted(self, full: str) -> bool:
        """Tell whether a name of CuPy has a meaning in a task form."""
        return full == "cupy" or not full.startswith(("cupy.cuda", "cupyx"))

    def _imports_first(self, lines: list[FormLine]) -> list[FormLine]:
        """Insert the imports of offload, and move the namespaces after the imports around them."""
        body = self.program.tree.body
        cupy = [node for node in body if self.uses.use[node] is StatementUse.IMPORT]
        names = self.names
        own = [f"import offload{_as('offload', names.offload)}"]
        wanted = [
            f"{word}{_as(word, name)}"
            for word, name in (("directives", names.directives), ("omp", names.omp))
            if any(
                f"{'@' if word == 'directives' else ''}{name}" in line.text for line in lines if line.part or line.text
            )
        ]
        if wanted:
            own.append(f"from offload.pragma import {', '.join(wanted)}")
        if not names.imports_numpy and any(
            f"{names.numpy}.{word}" in line.text for line in lines for word in PINNED.values()
        ):
            own.insert(0, f"import numpy{_as('numpy', names.numpy)}")
        made = [line for line in lines if line.part in cupy]
        if not cupy:
            at = self._first_place(lines)
            return [*lines[:at], *(FormLine(text) for text in own), *lines[at:]]
        first = cupy[0]
        run = _run_of_imports(body, first)
        last = max(node.end_lineno or 0 for node in run)
        result: list[FormLine] = []
        is_in, is_out = False, False
        for line in lines:
            if not is_in and line.origin >= first.lineno:
                result += [FormLine(text, first.lineno) for text in own]
                is_in = True
            if is_in and not is_out and line.origin > last:
                result += [FormLine(""), *made]
                is_out = True
            if line.part not in cupy:
                result.append(line)
        return result if is_out else [*result, *made]

    def _first_place(self, lines: list[FormLine]) -> int:
        """Return the index of the line before which imports may stand: after docstring and `__future__`."""
        last = 0
        for node in self.program.tree.body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if not (is_docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__")):
                break
            last = node.end_lineno or 0
        return next((k for k, line in enumerate(lines) if line.origin > last), len(lines))

    # -- code of the module that becomes a function ------------------------------------------------
    def _region(self, body: list[ast.stmt]) -> tuple[int, int] | None:
        """Return the first and the last statement of a module's suite that become a function, if this one has them."""
        program = self.program
        parts = [node for node in (*self.parts.blocks, *self.parts.copies) if program.function_of(node) is program.tree]
        if not parts or self._is_wrapped or program.function_of(body[0]) is not program.tree:
            return None
        holders = [
            k for k, node in enumerate(body) if any(part is node or node in program.ancestors(part) for part in parts)
        ]
        held = [part for part in parts if any(part is body[k] or body[k] in program.ancestors(part) for k in holders)]
        if len(held) < len(parts):
            return None  # of an inner suite, for which an outer one has been taken
        only = body[holders[0]]
        if len(holders) == 1 and isinstance(only, (ast.If, ast.Try, ast.With)) and self._is_kept(only):
            holding = [suite for suite in suites_of(only) if any(self._holds(suite, part) for part in parts)]
            if len(holding) == 1:
                return None  # the suite in it is the one
        waits = [k for k, node in enumerate(body) if any(part in self.waits.needed for part in ast.walk(node))]
        late = [k for k in waits if k > holders[-1] and not isinstance(body[k], (*FUNCTIONS, ast.ClassDef))]
        return holders[0], max([holders[-1], *late])

    def _is_kept(self, node: ast.stmt) -> bool:
        return self.parts.roles.get(node, Role.KEEP) is Role.KEEP

    def _holds(self, suite: list[ast.stmt], part: ast.stmt) -> bool:
        return any(node is part or node in set(self.program.ancestors(part)) for node in suite)

    def _wrapped(self, body: list[ast.stmt], indent: str, before: int) -> list[FormLine]:
        """Return a function with statements of the module, and its call."""
        names = RegionNames(self.program, self.parts, body)
        for line, text in names.obstacles:
            self.uses.refuse(line, text)
        name = self.parts.fresh("pipeline")
        number = body[0].lineno
        gap = [FormLine("")] * (1 if indent else 2)
        lines = [*gap, FormLine(f"{indent}@{self.names.directives}", number)]
        if not any(self.program.function_of(first) is self.program.tree for first in self.parts.blocks):
            lines.pop()
        lines.append(
            FormLine(f"{indent}def {name}({', '.join(names.passed)}):  # lines {number}-{body[-1].end_lineno}", number)
        )
        if names.kept_global:
            lines.append(FormLine(f"{indent}{_STEP}global {', '.join(names.kept_global)}", number))
        self._is_wrapped = True
        inner = self.suite(body, indent + _STEP, before)
        while inner and not inner[0].text.strip():
            inner.pop(0)
        lines += inner
        result = ", ".join(names.returned)
        if result:
            lines.append(FormLine(f"{indent}{_STEP}return {result}", body[-1].lineno))
        target = f"{result} = " if result else ""
        return [*lines, *gap, FormLine(f"{indent}{target}{name}({', '.join(names.passed)})", number)]


# -- lines ---------------------------------------------------------------------------------------------


def first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, with its decorators."""
    decorators = getattr(node, "decorator_list", None)
    return min(node.lineno, *(one.lineno for one in decorators)) if decorators else node.lineno


def _pieces(words: list[str], width: int) -> list[str]:
    """Join words to texts of limited width, separated by blanks at the ends."""
    pieces = [words[0]]
    for word in words[1:]:
        if len(pieces[-1]) + 1 + len(word) <= width:
            pieces[-1] += f" {word}"
        else:
            pieces[-1] += " "
            pieces.append(word)
    return pieces


def _quoted(text: str) -> str:
    """Return a string literal in double quotes, if that is possible without escapes."""
    return f"'{text}'" if '"' in text and "'" not in text else '"' + text.replace('"', '\\"') + '"'


def _is_code(line: FormLine) -> bool:
    text = line.text.strip()
    return bool(text) and not text.startswith("#")


def _joined(comments: list[FormLine], head: Callable[[], list[FormLine]]) -> list[FormLine]:
    return [*comments, *head()]


def _has_code(lines: Iterable[FormLine]) -> bool:
    return any(map(_is_code, lines))


def _is_counting(program: ProgramText, node: ast.expr) -> bool:
    """Tell whether an iterable may be left out: a range, or a name."""
    if isinstance(node, ast.Call):
        return program.dotted(node.func) in {"builtins.range", "builtins.enumerate", "builtins.zip"} and all(
            is_pure(arg) or _is_counting(program, arg) for arg in node.args
        )
    return is_pure(node)


def _in_namespace(namespace: str, full: str) -> str:
    rest = full.partition(".")[2]
    return f"{namespace}.{rest}" if rest else namespace


def _as(name: str, used: str) -> str:
    return "" if name == used else f" as {used}"


def _run_of_imports(body: list[ast.stmt], first: ast.stmt) -> list[ast.stmt]:
    """Return the imports that follow each other, with one of them."""
    at = body.index(first)
    stop = at
    while stop + 1 < len(body) and isinstance(body[stop + 1], (ast.Import, ast.ImportFrom)):
        stop += 1
    return body[at : stop + 1]
