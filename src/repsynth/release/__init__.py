"""What a run leaves behind: publishable, and all that follows from it free of charge."""

from repsynth.release.release import Release

__all__ = ["Release"]
