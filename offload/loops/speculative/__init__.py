"""Loops that are only probably parallel: what is decided, tried, logged, raced and remembered."""
