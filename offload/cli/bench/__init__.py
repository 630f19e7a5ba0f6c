"""``offload bench``: is this machine all right? What tasks, copies and launches take here, and what overlaps."""
