"""What is shown of a run: traces, profiles, the critical path, a live view."""
