"""Files: written whole or not at all, and checked in every part when read.

atomic   write beside, then move; make it last
checks   what a stranger's file may say
"""
