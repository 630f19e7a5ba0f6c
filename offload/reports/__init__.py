"""Reports on a run: traces, profiles, the critical path, a live view."""
