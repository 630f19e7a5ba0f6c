"""The device data environment: pure rules of mapping and copying."""
