"""What a run leaves behind: publishable, and all that follows from it free of charge.

release   the release itself: sample from it, ask what it cost
account   what it cost, in every unit a reader may want
format    what is in its files;  folder: reading and writing them
charged   whether its charges are those of its settings
"""

from repsynth.release.release import Release

__all__ = ["Release"]
