"""What the oracle, the runs and the sanitizer say together of each mutant."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.sanitizer.running import LEFT

EXPECTED = {
    "map": {"map", "update", "free"},
    "depend": {"depend", "wait"},
    "update": {"update", "map"},
    "wait": {"wait", "depend"},
    "detach": {"detach"},
    "queue": {"wait", "depend"},
    "none": set(),
}
"""The kinds of fix that bring back what a mutant of each kind lacks."""

NOT_SEEN = {
    "acc_regions": "an old value of the host is copied to the device again, and a copy is no read",
    "associated": "memory of target_associate_ptr is not observed",
    "detached_future": "a thread of a pool writes, and the code of threads is compared with their own tasks only",
    "devices_data": "the schedule decides whether the deferred construct finds the data, and nothing conflicts",
    "enter_exit": "the schedule decides whether the deferred construct finds the data, and nothing conflicts",
    "readme": "under some schedules the library refuses the overlapping maps before they race",
    "threads": "tasks of two threads of the host are not compared",
}
"""Why faulty mutants of a program are missed, as the reference says what is not seen."""

CLASSES = ("faulty", "harmless", "refused", "unclear")
"""A mutant is refused if the library reports it by itself: each run that differs raises an error, or each run under the
sanitizer does."""


@dataclass
class Judged:
    """A mutant, and what was found.

    Attributes
    ----------
    kinds : set of str
        The kinds of fix that are right: those of the oracle's violations, and those that bring back what was removed.
    findings : list of list of dict
        For each run under the sanitizer, its findings.
    is_reported : list of bool
        For each of these runs, whether it raises an error that the program itself does not raise.
    """

    mutant: object
    label: str
    reasons: list[str]
    kinds: set[str] = field(default_factory=set)
    violations: list[dict] = field(default_factory=list)
    findings: list[list[dict]] = field(default_factory=list)
    is_reported: list[bool] = field(default_factory=list)

    def in_all(self, is_right):
        """Tell whether each run has a right finding, or an error of the library."""
        runs = [
            any(map(is_right, found)) or reported
            for found, reported in zip(self.findings, self.is_reported, strict=True)
        ]
        return bool(runs) and all(runs)

    @property
    def has_right_kind(self):
        """Whether the runs have findings with the right kind of fix."""
        return self.in_all(lambda finding: finding["kind"] in self.kinds)

    @property
    def has_lines(self):
        """Whether the runs have findings that are the oracle's: the rule and both lines."""
        wanted = {(v["rule"], frozenset((v["first"], v["second"]))) for v in self.violations}
        return self.in_all(lambda finding: (finding["rule"], frozenset(finding["lines"])) in wanted)


def judged(mutant, answer, original):
    """Return the verdict on a mutant; `original` is the one result of the program that it is made from."""
    if "failed" in answer:
        return Judged(mutant, "unclear", [answer["failed"]])
    oracle, results = answer["oracle"], answer["outcomes"]
    reasons = sorted({v["rule"] for v in oracle["violations"]})
    kinds = EXPECTED[mutant.kind].union(*(v["kinds"] for v in oracle["violations"]))
    if "made asynchronous" in mutant.change:  # the construct itself comes too late, or never
        kinds |= {"update"} if "update" in mutant.change else {"map"}
    others = [r for r in results if (r["output"], r["error"]) != original]
    raised = sorted({r["error"] for r in others if r["error"] not in {None, LEFT}})
    always_raises = bool(raised) and (len(others) == len(results) or not reasons)
    always_raises = always_raises and all(r["error"] in raised for r in others)
    if others and not always_raises:
        reasons.append(f"{sum(r['runs'] for r in others)} runs differ")
    if always_raises:
        label, reasons = "refused", [f"raises {', '.join(raised)}"]
    elif oracle["error"] is not None:
        label, reasons = "unclear", [oracle["error"], *reasons]
    else:
        label = "faulty" if reasons else "harmless"
    findings = [run["findings"] for run in answer["sanitized"]]
    is_reported = [run["error"] not in {None, LEFT} for run in answer["sanitized"]]
    if label == "faulty" and is_reported and all(is_reported):
        label, reasons = "refused", [f"raises {answer['sanitized'][0]['error']} in each run under the sanitizer"]
    return Judged(mutant, label, reasons, kinds, oracle["violations"], findings, is_reported)
