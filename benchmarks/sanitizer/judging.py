"""What the oracle, the runs and the sanitizer say together of each mutant."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.sanitizer.running import LEFT

EXPECTED = {
    "map": {"map", "update", "free"},
    "depend": {"depend", "wait"},
    "update": {"update", "map"},
    "wait": {"wait", "depend"},
    "detach": {"detach", "depend"},
    "queue": {"depend", "wait"},
    "none": set(),
}
"""The kinds of fix that undo a mutation, for mutants of which only the results say that they are faulty."""

CLASSES = ("faulty", "harmless", "refused", "unclear")
"""A mutant is refused if the library reports it by itself: each run that differs raises an error."""


@dataclass
class Judged:
    """A mutant, and what was found."""

    mutant: object
    label: str
    reasons: list[str]
    kinds: set[str]
    violations: list[dict]
    findings: list[list[dict]] = field(default_factory=list)

    @property
    def is_found(self):
        """Whether each run under the sanitizer has a finding."""
        return bool(self.findings) and all(self.findings)

    @property
    def has_right_kind(self):
        """Whether each run has a finding with the right kind of fix."""
        return bool(self.findings) and all(any(f["kind"] in self.kinds for f in found) for found in self.findings)

    @property
    def has_lines(self):
        """Whether each run has a finding that is one of the oracle's: the rule and both lines."""
        wanted = {(v["rule"], frozenset((v["first"], v["second"]))) for v in self.violations}
        return bool(self.findings) and all(
            any((f["rule"], frozenset(f["lines"])) in wanted for f in found) for found in self.findings
        )


def judged(mutant, answer, original):
    """Return the verdict on a mutant; `original` is the one result of the program that it is made from."""
    if "failed" in answer:
        return Judged(mutant, "unclear", [answer["failed"]], set(), [])
    oracle, results = answer["oracle"], answer["outcomes"]
    reasons = sorted({v["rule"] for v in oracle["violations"]})
    kinds = set().union(*(v["kinds"] for v in oracle["violations"]))
    others = [r for r in results if (r["output"], r["error"]) != original]
    raised = sorted({r["error"] for r in others if r["error"] not in {None, LEFT}})
    always_raises = bool(raised) and (len(others) == len(results) or not reasons)
    always_raises = always_raises and all(r["error"] in raised for r in others)
    if others and not always_raises:
        reasons.append(f"{sum(r['runs'] for r in others)} runs differ")
    if not kinds:
        kinds = EXPECTED[mutant.kind]
    if always_raises:
        label, reasons = "refused", [f"raises {', '.join(raised)}"]
    elif oracle["error"] is not None:
        label, reasons = "unclear", [oracle["error"], *reasons]
    else:
        label = "faulty" if reasons else "harmless"
    findings = [run["findings"] for run in answer["sanitized"]]
    return Judged(mutant, label, reasons, kinds, oracle["violations"], findings)
