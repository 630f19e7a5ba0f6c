"""What the library costs and reaches, along with the same work by hand: ``python benchmarks/run.py NAME`` runs it."""
