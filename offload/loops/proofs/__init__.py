"""Proofs about a nest: where accesses meet, which indices stay inside, which statements feed which."""
