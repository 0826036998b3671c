"""Files.

atomic   write completely or not at all
checks   check untrusted input
"""
