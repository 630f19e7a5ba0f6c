"""The sanitizer: which accesses of a program no `map`, `update`, `depend` or wait orders or makes agree."""
