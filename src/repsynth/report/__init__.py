"""The report: a release as one page that people can read, and a private one for the curator."""
