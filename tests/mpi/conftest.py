"""Tests with ranks: what stands in ``ranks/`` runs under ``mpiexec`` alone, which the tests here start."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("OFFLOAD_TESTS_RANKS") else ["ranks"]
