"""The parts of the site's build that are our own: extensions of Sphinx."""
