"""Clauses, one file a kind, and their effect on a construct's list items and arguments."""
