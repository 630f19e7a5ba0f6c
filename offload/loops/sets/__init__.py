"""One loop on several devices: what each of them carries out, reads and owns, and which way is best."""
