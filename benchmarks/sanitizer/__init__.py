"""Mutants of correct programs, and how many of the faulty ones the sanitizer finds."""
