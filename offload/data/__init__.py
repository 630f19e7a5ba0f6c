"""The device data environment: rules of mapping, and the code that carries them out."""
