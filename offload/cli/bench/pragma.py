"""``offload bench pragma``: the costs of directive strings: an encounter, a rewriting, and the import."""

from __future__ import annotations

import linecache
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

import offload
from offload import inout
from offload.cli.bench.measuring import Measured, in_turn
from offload.pragma import directives, omp

if TYPE_CHECKING:
    from collections.abc import Callable

# As many as make a turn of a few milliseconds.
_N_ENCOUNTERS = 1_000

BLOCK, CALL, AGAIN = "a taken block", "fn.options(depend=[…])(…)", "the same call again, as a control"

# One in each of eight pieces of the function that is rewritten; the number of the turn makes each string a new one.
_STRINGS = (
    "task depend(inout: x{0}[i:1]) firstprivate(i)",
    "task depend(in: x{0}) depend(out: y{0}[0:n])",
    "target nowait map(to: x{0}) map(tofrom: y{0}) depend(inout: y{0})",
    "target data map(tofrom: x{0}[0:n])",
    "task depend(in: x{0}[i]) if(n > 4) priority(i)",
    "taskgroup",
    "target map(tofrom: y{0}) device(0)",
    "task depend(iterator(k=0:n), in: x{0}[k]) depend(inout: y{0})",
)


@offload.task
def null(x: Any) -> None:
    """Use the argument."""
    _ = x


@offload.target(nowait=True)
def null_on_device(x: Any) -> None:
    """Use the argument."""
    _ = x


@directives
def task_blocks(x: Any, n: int) -> None:
    """Encounter a task as a block."""
    for _ in range(n):
        with omp("task depend(inout: x)"):
            _ = x


@directives
def target_blocks(x: Any, n: int) -> None:
    """Encounter a target region as a block."""
    for _ in range(n):
        with omp("target nowait depend(inout: x)"):
            _ = x


def task_calls(x: Any, n: int) -> None:
    """Encounter the same task as a call."""
    for _ in range(n):
        null.options(depend=[inout(x)])(x)


def target_calls(x: Any, n: int) -> None:
    """Encounter the same target region as a call."""
    for _ in range(n):
        null_on_device.options(depend=[inout(x)])(x)


def measure(repeat: int, n_encounters: int = _N_ENCOUNTERS) -> list[Measured]:
    """Measure everything that directive strings cost, on one worker and a simulated device."""
    return [_encounters(repeat, n_encounters), _rewriting(repeat), _imports(repeat)]


def _encounters(repeat: int, n_encounters: int) -> Measured:
    rows: dict[str, dict[str, list[float]]] = {}
    with offload.Runtime("sim:1", num_threads=1):
        device = offload.target_alloc(8)
        for column, x, blocks, calls in (
            ("task", np.zeros(8), task_blocks, task_calls),
            ("target, device array", device, target_blocks, target_calls),
        ):
            programs: dict[str, Callable[[Any, int], None]] = {BLOCK: blocks, CALL: calls, AGAIN: calls}
            timed = {name: partial(_each_us, program, x, n_encounters) for name, program in programs.items()}
            samples = in_turn(timed, repeat)
            for name in programs:
                rows.setdefault(name, {})[column] = samples[name]
            for name in (BLOCK, AGAIN):
                more = [one - other for one, other in zip(samples[name], samples[CALL], strict=True)]
                rows.setdefault(f"{name}, less the call", {})[column] = more
        offload.target_free(device)
    note = (
        f"{n_encounters:,} encounters in a row with the same clauses, timed until the taskwait returns. Expect a block "
        "to take at most 1 µs more than the call, once the control shows that the machine is quiet."
    )
    return Measured("An encounter, µs", rows, note)


def _each_us(program: Callable[[Any, int], None], x: Any, n_encounters: int) -> float:
    began_s = time.perf_counter()
    program(x, n_encounters)
    offload.taskwait()
    return (time.perf_counter() - began_s) * 1e6 / n_encounters


def _rewriting(repeat: int) -> Measured:
    numbers = iter(range(repeat + 1))
    samples = in_turn({"50 lines, 8 directives": lambda: _rewriting_ms(next(numbers))}, repeat)
    note = "A function that is decorated with `@directives`. Expect at most 2 ms."
    return Measured("Rewriting, ms", {name: {"": one} for name, one in samples.items()}, note)


def _rewriting_ms(number: int) -> float:
    """Decorate a function with strings that no other turn has parsed."""
    lines = ["@directives", "def program(a, x, y, n):".replace("x", f"x{number}").replace("y", f"y{number}")]
    for string in _STRINGS:
        lines += [
            "    for i in range(n):",
            "        scale = 2.0 * a[i] + n",
            f'        with omp("{string.format(number)}"):',
            f"            y{number}[i] += scale * x{number}[i] + a[i]",
            "    if n > 3:",
            "        a[0] = a[1] + n",
        ]
    lines += ["    return a"]
    text, file = "\n".join(lines) + "\n", f"<bench {number}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    code = compile(text, file, "exec")
    began_s = time.perf_counter()
    exec(code, {"directives": directives, "omp": omp})  # noqa: S102  # the text above
    return (time.perf_counter() - began_s) * 1e3


def _imports(repeat: int) -> Measured:
    calls = {
        "import offload": partial(_import_ms, "", "offload"),
        "import offload.pragma, after it": partial(_import_ms, "import offload", "offload.pragma"),
    }
    rows = {name: {"": one} for name, one in in_turn(calls, repeat).items()}
    note = "In processes of their own. Expect at most 10 ms for offload.pragma; `import offload` does not import it."
    return Measured("Imports, ms", rows, note)


def _import_ms(before: str, module: str) -> float:
    """Time an import in a new interpreter."""
    timed = f"began_s = time.perf_counter()\nimport {module}\nprint(time.perf_counter() - began_s)"
    command = [sys.executable, "-c", f"import time\n{before}\n{timed}"]
    return float(subprocess.check_output(command, text=True)) * 1e3  # noqa: S603  # this interpreter, and the text above
