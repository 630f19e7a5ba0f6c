"""The device data environment: rules of mapping, and what carries them out."""
