"""What typed copies reach and cost."""
