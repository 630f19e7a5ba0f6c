"""Loops that are only probably parallel: decisions, trials, logs, races and their memory."""
