"""Interruptions of the library's own steps: Ctrl-C, finalizers, and the rule that tells whose code a frame runs."""
