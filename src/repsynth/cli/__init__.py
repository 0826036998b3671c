"""The command line."""

from repsynth.cli.main import main

__all__ = ["main"]
