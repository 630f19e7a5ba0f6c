"""The simulated device: memory of its own, streams on threads, sticky errors. It needs NumPy only."""
