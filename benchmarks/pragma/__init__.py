"""Directive strings along with the same programs as decorated functions."""
