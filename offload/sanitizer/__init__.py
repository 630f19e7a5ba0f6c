"""The sanitizer: which accesses of a program no `map`, `update`, `depend` or wait orders or makes agree."""

from offload.sanitizer.findings import Finding, Fix, Side
from offload.sanitizer.tracked import TrackedArray, tracked

__all__ = ["Finding", "Fix", "Side", "TrackedArray", "tracked"]
