"""From Python's text to the typed tree."""
