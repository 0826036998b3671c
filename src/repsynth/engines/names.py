"""Engines by name. A new engine is one file and one line here."""

ENGINES: dict[str, str] = {"local": "repsynth.engines.local:LocalEngine"}
"""Where each engine is: "module:class", imported when it is needed."""
