"""One loop on several devices: the part that each of them carries out, reads and owns, and the best way."""
