"""Print the tables of ``docs/peers-programs.md`` from the outcomes that ``published.py FOLDER --json FILE`` wrote.

Usage: ``python tests/pragma/peers/published_table.py FILE``
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

ONE_THREAD = "a team has one thread; the test counts more"
LENIENT = "the test expects an error; this is allowed here"
UNSET = "reads a private variable before it has a value"

NOTES = {
    "examples/TestDataEnv.py": ("refused", UNSET + " (`UnboundLocalError`)"),
    "TestOpenmpDataClauses.test_private_retain_array": ("refused", UNSET + " (`UnboundLocalError`)"),
    "test_for.test_for_reduction_private_error": ("refused", "as in OMP4Py; here by an `UnboundLocalError`"),
    "TestOpenmpConstraints.test_closely_nested_for_loops": ("runs", LENIENT + ": the inner `for` is an inner loop"),
    "TestOpenmpConcurrency.test_named_critical": ("runs", ONE_THREAD),
    "TestOpenmpTask.test_task_barrier": ("fails", "the program itself gives NumPy a fractional size"),
    "TestOpenmpTask.test_task_priority": ("runs", "the test expects that priorities decide the order"),
    "TestOpenmpTarget.test_target_map_slice_read_out_mapping (strings in place)": (
        "refused",
        "reads outside of the mapped section (`IndexError`); PyOMP reads uninitialised memory",
    ),
    "test_for.test_for_lastprivate_var_error": ("runs", LENIENT),
    "test_for.test_for_break": ("differs", "a scalar that a loop assigns, in no clause, is private to an iteration"),
    "test_section.test_section_only_error2": ("runs", LENIENT + "; a statement between sections runs in place"),
    "test_single.test_single_nowait": ("fails", "the program itself does not import `time`"),
    "openmp.legacy/omp_for_firstprivate.py": ("refused", "the sum of each thread's iterations (`UnboundLocalError`)"),
    "openmp.legacy/omp_for_schedule_auto.py": ("refused", "the sum of each thread's iterations (`UnboundLocalError`)"),
    "test_nowait_schedule": ("runs", "the other threads' elements stay uninitialised"),
}
"""Outcomes that need a reader: what the program does, and why."""

REASONS = (
    (r"MissingRoutineError: (\w+)", r"calls `\1`, which is not among the routines"),
    (r"UsageError: omp\(.*needs a function under @directives.*", "its function is not decorated"),
    (r"UsageError: (\w+) inside of the target body .*", r"`\1` in the block of a `target`"),
    (r"UnsupportedError: omp_get_thread_num\(\) was called.*", "`omp_get_thread_num` in a task"),
    (r"PragmaError: omp_get_thread_num\(\) is not supported.*", "`omp_get_thread_num` in a worksharing loop"),
    (r"PragmaError: `(.*?)` is not supported on `(.*?)`.*", r"`\1` on `\2`"),
    (r"PragmaError: `-` is not supported in `reduction`.*", "`reduction(-: …)`; write `+`"),
    (r"PragmaError: `(.*?)` is not supported;.*", r"`\1`"),
    (r"PragmaError: `(.*?)` cannot stand inside the nest.*", r"`\1` in a worksharing loop"),
    (r"PragmaError: `(\w+)` is already in `(\w+)`.*", r"`\1` twice in `\2`"),
    (r"PragmaError: `(\w+)` appears twice.*", r"`\1` twice"),
    (r"PragmaError: omp: a directive must be one literal.*", "the directive is no literal string"),
    (r"PragmaError: omp \w+: the block assigns (\w+), and.*", r"asks: is `\1` shared, private or firstprivate?"),
    (r"PragmaError: omp \w+: (\w+) holds a value.*", r"asks: is `\1` shared, private or firstprivate?"),
    (r"PragmaError: one `for … in range.*", "needs exactly one `for … in range(…)`"),
    (r"PragmaError: map: each iteration assigns (\w+).*", r"asks: is `\1` a reduction or lastprivate?"),
    (r"PragmaError: lastprivate: `conditional`.*", "`lastprivate(conditional: …)`"),
    (r"PragmaError: atomic: .*", "an atomic update with an operator that loops do not have"),
    (r"PragmaError: collapse needs.*", "statements between the loops of `collapse`"),
    (r"PragmaError: default\(none\): (\w+) .*", r"`default(none)`: `\1` is in no clause"),
    (r"ClauseError: map\(to\): int .*", "`map` of a number on `target enter data`"),
    (r"LoopError: .*an annotation needs a value.*", "an annotation without a value in a loop"),
    (r"LoopError: .*an iteration reads (\w+) before.*", r"`\1` passes a value between iterations, without a clause"),
    (r"LoopError: .*iterations depend on each other by '(\w+)'.*", r"iterations share the array `\1`"),
    (r"LoopError: .*argument '(\w+)' is of class list.*", r"the list `\1` in a worksharing loop"),
    (r"LoopError: .*`([\w.]+)(\(\))?`?:? .*has no device form.*", r"calls `\1` in a worksharing loop"),
    (r"LoopError: .*`[\w.]+\(.*`: `([\w.]+)` has no device form.*", r"calls `\1` in a worksharing loop"),
    (r"LoopError: .*can iterate only over range.*", "a loop over a list in a worksharing loop"),
    (r"LoopError: .*`break`.*", "`break` in a worksharing loop"),
    (r"LoopError: .*is a row of.*", "a whole row is assigned in a worksharing loop"),
    (r"LoopError: .*a tuple is not a number.*", "a tuple in a worksharing loop"),
    (r"LoopError: .*", "the loop's body is outside of the subset of loops"),
    (r"AssertionError: Exception not raised.*", LENIENT),
    (r"Failed: DID NOT RAISE.*", LENIENT),
    (r"AssertionError: .*", ONE_THREAD),
    (r"plain Python fails: .*", ""),
)
RUNS = {LENIENT, ONE_THREAD, ""}


def outcome(program: str, status: str, why: str) -> tuple[str, str]:
    """Return the word for an outcome, and the reason."""
    if program in NOTES and status != "runs":
        return NOTES[program]
    for pattern, reason in REASONS:
        if why and (found := re.match(pattern, why, re.DOTALL)):
            text = found.expand(reason)
            expects = re.search(r"_error\d?$|TestOpenmpConstraints|test_default_none$", program)
            if status == "refused" and expects:
                text += ", as there"
            return ("runs" if text in RUNS else status), text
    return status, why


def _word(word: str, why: str) -> str:
    """Return the outcome; a program whose own assertion does not hold runs in another way."""
    return "runs, but" if word == "runs" and why.startswith((ONE_THREAD, LENIENT)) else word


def main() -> None:
    rows = json.loads(Path(sys.argv[1]).read_text())
    tables: dict[str, list[tuple[str, str, str]]] = {}
    for row in rows:
        program = row["program"]
        word, why = outcome(program, row["status"], row["why"])
        word = _word(word, why)
        if word == "refused":
            if row["why"].startswith("MissingRoutineError"):
                word += " at the import"
            elif row["when"] == "call":
                word += " at the call"
        part = f"{row['peer']}, examples" if program.startswith("examples/") else row["peer"]
        if row["peer"] in {"PyOMP", "OMP4Py"} and not program.startswith("examples/"):
            part = f"{row['peer']}, tests"
        tables.setdefault(part, []).append((program.removeprefix("examples/"), word, why))
    print("| programs | run | run, but | refused at decoration | refused at the import or the call | other |")
    print("|---|---|---|---|---|---|")
    for part, entries in tables.items():
        n = Counter(word for _, word, _ in entries)
        n["refused at the call"] += n.pop("refused at the import", 0)
        counts = [n.pop(word, 0) for word in ("runs", "runs, but", "refused", "refused at the call")]
        print(f"| {part} | {' | '.join(map(str, counts))} | {n.total()} |")
    for part, entries in tables.items():
        print(f"\n## {part}\n\n| program | outcome | why |\n|---|---|---|")
        for program, word, why in entries:
            print(f"| `{program}` | *{word}* | {why} |")


if __name__ == "__main__":
    main()
