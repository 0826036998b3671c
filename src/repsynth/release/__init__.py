"""Releases: the result of a run, its account and accuracy, its files, and sampling from it."""

from repsynth.release.release import Release

__all__ = ["Release"]
