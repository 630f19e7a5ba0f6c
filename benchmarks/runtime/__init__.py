"""What the runtime itself takes for an operation."""
