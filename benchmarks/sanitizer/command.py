"""The study "sanitizer": mutants of correct programs, and how many of the faulty ones the sanitizer finds."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from queue import SimpleQueue

from benchmarks.sanitizer import cost
from benchmarks.sanitizer.catalogue import programs
from benchmarks.sanitizer.judging import CLASSES, NOT_SEEN, judged
from benchmarks.sanitizer.mutations import mutants, unchanged
from benchmarks.sanitizer.running import Worker, serve


def add_arguments(parser):
    parser.description = (
        "Make mutants of correct programs: each has one map, dependence, update, wait, detach or queue removed or "
        "weakened.\nAn oracle says which are faulty: it shares no code with the sanitizer, compares all pairs of "
        "accesses by brute\nforce, and compares the results of runs under random schedules. "
        "Then the sanitizer runs them."
    )
    parser.add_argument("--program", action="append", help="take this program only; may be repeated")
    parser.add_argument("--limit", type=int, help="the number of mutants of each program (default: all)")
    parser.add_argument("--runs", type=int, default=50, help="runs under random schedules (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs under the sanitizer (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write everything that was found to a file")
    parser.add_argument("--show", metavar="MUTANT", help="print the text of one mutant, such as saxpy-3, and end")
    parser.add_argument("--verbose", action="store_true", help="list every mutant")
    parser.add_argument("--cost", action="store_true", help="measure what the sanitizer costs, and nothing else")
    parser.add_argument("--operations", type=int, default=100_000, help="with --cost (default: %(default)s)")
    parser.add_argument("--cost-of", metavar="NAME", help="print the seconds and bytes of one program of --cost")
    parser.add_argument("--serve", action="store_true", help="carry out jobs of standard input (for the study itself)")


def run(args):
    if args.serve:
        return serve()
    if args.cost_of:
        print(*cost.measured(args.cost_of, args.operations))
        return 0
    if args.cost:
        return cost.run(args.operations)
    chosen = programs()
    if args.show:
        name, _, number = args.show.rpartition("-")
        print(mutants(chosen[name])[int(number)].text)
        return 0
    chosen = {name: program for name, program in chosen.items() if not args.program or name in args.program}
    made = [m for program in chosen.values() for m in [unchanged(program), *mutants(program, args.limit)]]
    with Pool(args) as pool:
        originals = pool.originals(chosen.values())
        everything = pool.judge(made, originals)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:  # noqa: PTH123  # a script
            json.dump([asdict(j) | {"kinds": sorted(j.kinds)} for j in everything], file, indent=1)
    return report(everything, len(chosen), verbose=args.verbose, is_sanitized=args.seeds > 0)


class Pool:
    """Worker processes, and the jobs for them."""

    def __init__(self, args):
        self.args, self.free = args, SimpleQueue()
        self.workers = [Worker() for _ in range(args.workers)]
        for worker in self.workers:
            self.free.put(worker)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.stop()

    def answer(self, name, text, n_sanitized):
        """Have a worker do one job."""
        job = {"name": name, "text": text, "runs": self.args.runs, "seeds": n_sanitized}
        worker = self.free.get()
        try:
            return worker.do(job)
        finally:
            self.free.put(worker)

    def originals(self, chosen):
        """Check the programs themselves, without the sanitizer, and return the one result of each."""
        with ThreadPoolExecutor(self.args.workers) as threads:
            answers = threads.map(lambda program: (program, self.answer(program.name, program.text, 0)), chosen)
            return {program.name: correct(program, answer) for program, answer in answers}

    def judge(self, those, originals):
        """Return the verdict on each mutant."""
        with ThreadPoolExecutor(self.args.workers) as threads:
            return [
                *threads.map(
                    lambda m: judged(m, self.answer(m.name, m.text, self.args.seeds), originals[m.program]), those
                )
            ]


def correct(program, answer):
    """Return the result of a program; raise if it is not correct."""
    if "failed" in answer:
        raise AssertionError(f"{program.name}: {answer['failed']}")
    (only, *others), oracle = answer["outcomes"], answer["oracle"]
    if others or only["error"] or oracle["error"] or oracle["violations"]:
        raise AssertionError(f"{program.name} is not correct: {answer}")
    return only["output"], None


def report(everything, n_programs, *, verbose, is_sanitized):
    """Print the figures, and list what was missed and what was found wrongly; 1 if there is any."""
    classes = {label: [j for j in everything if j.label == label] for label in CLASSES}
    print(f"{len(everything) - n_programs} mutants of {n_programs} programs, and the programs themselves")
    for label, those in classes.items():
        print(f"  {label:9} {len(those):4}  {dict(Counter(j.mutant.kind for j in those))}")
    if verbose:
        for one in everything:
            show(one)
    for one in classes["unclear"]:
        show(one)
    if not is_sanitized:
        return 0
    faulty = classes["faulty"]
    right = [j for j in faulty if j.has_right_kind]
    missed = [j for j in faulty if not j.has_right_kind]
    false = [j for j in classes["harmless"] if any(j.findings)]
    share = 100 * len(right) / max(1, len(faulty))
    print(f"faulty: {len(faulty)}; found with the right kind of fix: {len(right)} ({share:.1f} %)")
    print(f"of these, with the oracle's rule and both lines: {sum(j.has_lines for j in right)}")
    print(f"missed: {len(missed)}")
    for one in missed:
        show(one)
        print(f"      reason: {NOT_SEEN.get(one.mutant.program, 'unknown')}")
    print(f"not faulty: {len(classes['harmless'])}; of these with a finding: {len(false)}")
    for one in false:
        show(one)
    return int(bool(missed or false))


def show(one):
    """Print a mutant in a few lines."""
    mutant = one.mutant
    print(f"  {mutant.name} line {mutant.line} [{mutant.kind}: {mutant.change}] {one.label}: {', '.join(one.reasons)}")
    for finding in sorted({json.dumps(f) for found in one.findings for f in found}):
        print(f"      finding {finding}")
