"""Run programs: under random schedules, under the oracle, and under the sanitizer.

A worker process runs the mutants of one program after the other. It is ended if one of them hangs.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import subprocess
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread

import offload as omp
from benchmarks.sanitizer.oracle.judge import judge

DEVICES = "sim:2"
THREADS = (0, 1, 2, 4)
TIMEOUT_S = 90.0
LEFT = "data is left at the end"
TRIES = 4


def written(text, name, folder):
    """Write a program's text to a file, where findings and errors find its lines; return the path."""
    path = Path(folder) / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    linecache.checkcache(str(path))
    return str(path)


def outcome(text, file, seed, **options):
    """Return what a program prints under one schedule, the error that it ends with or `LEFT`, and the runtime.

    Parameters
    ----------
    text, file : str
        The program.
    seed : int
        The seed of the schedule; it also chooses the number of threads.
    **options
        More options of the runtime.

    Returns
    -------
    tuple of (str, str or None, Runtime or None)
    """
    output, runtime, error = io.StringIO(), None, None
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stdout(output),
            omp.Runtime(DEVICES, seed=seed, num_threads=THREADS[seed % len(THREADS)], **options) as runtime,
        ):
            warnings.simplefilter("always", omp.CleanupWarning)
            exec(compile(text, file, "exec"), {"__name__": "program", "__file__": file})
    except Exception as raised:  # noqa: BLE001  # a mutant may raise anything
        error = name_of(raised)
    if error is None and any(warning.category is omp.CleanupWarning for warning in warned):
        error = LEFT
    return output.getvalue(), error, runtime


def name_of(error):
    """Return the class of an error; of a group, the classes in it."""
    if isinstance(error, ExceptionGroup):
        return "+".join(sorted({name_of(one) for one in error.exceptions}))
    return type(error).__name__


def outcomes(text, file, runs):
    """Return the distinct results of that many runs, each with the number of runs."""
    counts = {}
    for seed in range(runs):
        found = outcome(text, file, seed)[:2]
        counts[found] = counts.get(found, 0) + 1
    return [{"output": output, "error": error, "runs": n} for (output, error), n in counts.items()]


def sanitized(text, file, seed):
    """Return the findings of one run under the sanitizer, and its result."""
    from offload.sanitizer.imports import tracked_imports

    with tracked_imports(Path(file).parent), contextlib.redirect_stderr(io.StringIO()):
        output, error, runtime = outcome(text, file, seed, sanitize=True)
    found = [] if runtime is None else [described(finding) for finding in runtime.findings]
    return {"findings": found, "output": output, "error": error}


def described(finding):
    """Return what is compared of a finding."""
    lines = [None if side is None else side.line for side in (finding.first, finding.second)]
    return {
        "rule": finding.rule,
        "lines": lines,
        "kind": finding.fix.kind,
        "text": finding.fix.text,
        "item": finding.item,
    }


def work(job, folder):
    """Carry out one job, and return what was found."""
    file = written(job["text"], job["name"], folder)
    verdict = judge(job["text"], file)
    violations = [asdict(v) | {"kinds": sorted(v.kinds)} for v in verdict.violations]
    found = {"name": job["name"], "oracle": {"error": verdict.error, "violations": violations}}
    found["outcomes"] = outcomes(job["text"], file, job["runs"])
    found["sanitized"] = runs_under_sanitizer(job["text"], file, job["seeds"])
    return found


def runs_under_sanitizer(text, file, n_runs):
    """Return so many runs without an error of the library's; with errors, if there are too few others."""
    found, failed = [], []
    for seed in range(TRIES * n_runs):
        if len(found) < n_runs:
            run = sanitized(text, file, seed)
            (found if run["error"] in {None, LEFT} else failed).append(run)
    return (found + failed)[:n_runs]


def serve():
    """Carry out the jobs of standard input, a line each, until it ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    with TemporaryDirectory() as folder:
        for line in sys.stdin:
            job = json.loads(line)
            try:
                found = work(job, folder)
            except Exception as error:  # noqa: BLE001  # reported, and the others go on
                found = {"name": job["name"], "failed": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(found) + "\n")
            answers.flush()
    return 0


class Worker:
    """A process that carries out jobs, and is started again when one of them hangs."""

    def __init__(self):
        self.process = None
        self.lines = SimpleQueue()

    def start(self):
        command = [sys.executable, str(Path(__file__).parents[1] / "run.py"), "sanitizer", "--serve"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines = SimpleQueue()
        Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()

    @staticmethod
    def _read(process, lines):
        for line in process.stdout:
            lines.put(line)
        lines.put(None)

    def do(self, job):
        """Return the answer to a job."""
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=TIMEOUT_S)
        except (Empty, BrokenPipeError):
            line = None
        if line is None:
            why = "hangs" if self.process.poll() is None else f"ended with status {self.process.returncode}"
            self.stop()
            return {"name": job["name"], "failed": why}
        return json.loads(line)

    def stop(self):
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None
