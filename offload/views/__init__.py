"""Who looks on: pictures of recorded task graphs, and what a runtime does line by line."""
