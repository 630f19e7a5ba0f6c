"""From text to a run: compilers, what is decided at a launch, what calls lead to."""
