"""The constructs: one file each, from its clauses to its task."""
