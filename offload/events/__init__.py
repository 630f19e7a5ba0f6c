"""Events, what fulfils them, and the gate that finds out what has passed."""
