"""Tasks, their dependences and the engine that runs them."""
