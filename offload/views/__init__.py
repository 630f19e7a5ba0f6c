"""Observers: pictures of recorded task graphs, and a line for each step of a runtime."""
