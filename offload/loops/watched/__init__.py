"""Nests that take note of what they touch: profiles, exchange logs, inspectors."""
