"""From text to a run: compilers, decisions at a launch, results of calls."""
