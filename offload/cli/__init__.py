"""The command ``offload``: ``demo``, ``bench`` and ``info``."""

from offload.cli.command import main

__all__ = ["main"]
