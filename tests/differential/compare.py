"""Compare what random programs come to in two trees.

    python tests/differential/compare.py --other /path/to/tree [--this TREE] [--programs 0:2000] [--jobs 2]

Each tree's package runs in processes of its own, and both get the same programs from this tree's tests. The first
program that differs is made as short as it can be, and printed with the outcomes of both trees: ``=`` lines are equal.
A program that differs only now and then counts as well. The exit status is 1 if there is a difference, or if a process
dies or hangs. ``--show SEED`` prints one program and its outcome in this tree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 100
"""Programs a process carries out. A quarter of the chunks have no C compiler."""

MOST_SHOWN = 5
"""Reports stop when so many programs have differed; each chunk has at most one."""

DIED = "the process died"


class Tree:
    """Carries out programs with the package of one tree, in a process that is begun when it is needed.

    Parameters
    ----------
    path : str or Path
        The tree.
    mode : dict
        Arguments of `tests.differential.world.Mode`.
    """

    def __init__(self, path, mode=None):
        self.path, self.mode = Path(path).resolve(), mode or {}
        self._process = self._has_compiler = None

    def outcome(self, program):
        """Return the lines of a program; if the process dies, one that says so."""
        if self._process is not None and self._has_compiler != program["has_compiler"]:
            self.close()
        if self._process is None:
            self._begin(program["has_compiler"])
        try:
            self._process.stdin.write(json.dumps(program) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        self.close()
        return [DIED]

    def _begin(self, has_compiler):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("OFFLOAD_", "OMP_", "ACC_"))}
        env |= {"PYTHONHASHSEED": "0"} | ({} if has_compiler else {"OFFLOAD_CC": "none"})
        command = [sys.executable, str(Path(__file__).with_name("child.py")), str(self.path), json.dumps(self.mode)]
        self._has_compiler = has_compiler
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, env=env, cwd="/", **pipes)

    def close(self):
        """End the process."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait()
            self._process = None


def differs(trees, program):
    """Return the outcomes of both trees if they differ, else None."""
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(lambda tree: tree.outcome(program), trees)
    return (ours, theirs) if ours != theirs or ours == [DIED] else None


def shorter(steps):
    """Yield lists of steps that are shorter: halves and quarters left out, single steps, and blocks opened."""
    size = len(steps) // 2
    while size >= 1:
        for first in range(0, len(steps), size):
            yield steps[:first] + steps[first + size :]
        size //= 2
    for place, step in enumerate(steps):
        before, after = steps[:place], steps[place + 1 :]
        if "steps" in step:
            yield before + step["steps"] + after
            for inner in shorter(step["steps"]):
                yield [*before, {**step, "steps": inner}, *after]
        if "programs" in step:
            for number, program in enumerate(step["programs"]):
                others = step["programs"][:number], step["programs"][number + 1 :]
                for inner in shorter(program):
                    yield [*before, {**step, "programs": [*others[0], inner, *others[1]]}, *after]
        if step.get("times", 1) > 1:
            yield [*before, {**step, "times": step["times"] - 1}, *after]


def shrunk(trees, program, limit_s=120.0):
    """Return the shortest program that still differs, of those that leaving out steps leads to, and its outcomes."""
    found, end = differs(trees, program), time.monotonic() + limit_s
    if found is None:
        return program, None
    goes_on = True
    while goes_on and time.monotonic() < end:
        goes_on = False
        for steps in shorter(program["steps"]):
            candidate = {**program, "steps": steps}
            again = differs(trees, candidate)
            if again is not None:
                program, found, goes_on = candidate, again, True
                break
            if time.monotonic() > end:
                break
    return program, found


def report(program, ours, theirs, names=("this", "other")):
    """Return a text that shows a program and how its outcomes differ."""
    lines = [f"program {program['seed']} differs; runtime {program['runtime']}, keeps={program['keeps']}"]
    lines += [f"    {step}" for step in program["steps"]]
    for our, their in zip_longest(ours, theirs, fillvalue="(nothing)"):
        if our == their:
            lines.append(f"  = {our}")
        else:
            lines += [f"{names[0]:>5}: {our}", f"{names[1]:>5}: {their}"]
    return "\n".join(lines)


def compared(paths, seeds, modes=({}, {})):
    """Compare the programs of some seeds; return a report of the first one that differs, shrunk, and which differ."""
    from tests.differential.programs import program

    trees = [Tree(path, mode) for path, mode in zip(paths, modes, strict=True)]
    text, different = None, []
    try:
        for seed in seeds:
            drawn = program(seed)
            first = differs(trees, drawn)
            if first is None:
                continue
            different.append(seed)
            if text is None:
                small, found = shrunk(trees, drawn)
                text = report(small, *found) if found else "only now and then:\n" + report(drawn, *first)
    finally:
        for tree in trees:
            tree.close()
    return text, different


def _show(path, seed):
    from tests.differential.programs import program

    tree, drawn = Tree(path), program(seed)
    for step in drawn["steps"]:
        print(step)
    print(*tree.outcome(drawn), sep="\n")
    tree.close()


def main():
    """Compare, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--other", help="the tree to compare with")
    parser.add_argument("--this", default=ROOT, help="the tree that is compared; by default the one this file is in")
    parser.add_argument("--programs", default="0:2000", help="the seeds FIRST:END")
    parser.add_argument("--jobs", type=int, default=1, help="chunks that are compared at the same time")
    parser.add_argument("--mode", type=json.loads, default={}, help="arguments of Mode for the other tree, as JSON")
    parser.add_argument("--show", type=int, metavar="SEED", help="print a program and its outcome")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if options.show is not None:
        return _show(options.this, options.show)
    if options.other is None:
        parser.error("--other is missing: the tree to compare with")
    first, end = map(int, options.programs.split(":"))
    chunks = [range(start, min(start + CHUNK, end)) for start in range(first, end, CHUNK)]
    began, n_done, all_different = time.monotonic(), 0, []
    paths = options.this, options.other
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda chunk: compared(paths, chunk, ({}, options.mode)), chunks)
        for chunk, (text, different) in zip(chunks, results, strict=True):
            if text and len(all_different) < MOST_SHOWN:
                print(text, flush=True)
            n_done, all_different = n_done + len(chunk), all_different + different
            print(f"{n_done} programs, {len(all_different)} differ, {time.monotonic() - began:.0f} s", flush=True)
    if all_different:
        print("different:", *all_different[:100])
    return int(bool(all_different))


if __name__ == "__main__":
    sys.exit(main())
