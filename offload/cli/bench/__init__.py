"""``offload bench``: is this machine all right? Times of tasks, copies and launches, and their overlap."""
