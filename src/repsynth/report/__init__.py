"""The report: a release as one page that people can read."""
