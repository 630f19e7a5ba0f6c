"""The porter: ``offload port`` runs a CuPy program with streams, and reports races and needless synchronisation."""
