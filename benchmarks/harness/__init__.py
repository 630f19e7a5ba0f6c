"""Options, runs in turn and tables: what the studies have in common."""
