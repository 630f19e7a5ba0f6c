"""The sanitizer: which accesses of a program no `map`, `update`, `depend` or wait orders or makes agree."""

from offload.sanitizer.tracked import TrackedArray, tracked

__all__ = ["TrackedArray", "tracked"]
