"""How a test starts a program: with warnings as errors."""

from offload.loops.running.build import builder

IS_COMPILED = builder.compiler is not None
STRICT = ["-W", "error"] if IS_COMPILED else ["-W", "error", "-W", "ignore::UserWarning"]
"""Options of Python: without a compiler each loop says once, rightly, that it is slow."""
