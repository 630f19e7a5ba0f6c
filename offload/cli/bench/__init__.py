"""Benchmarks, each with its peer timed in the same run."""
