"""Nests that note their accesses: profiles, exchange logs, inspectors."""
