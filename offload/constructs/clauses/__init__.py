"""Clauses, one file a kind, and what becomes of a construct's list items and arguments by them."""
