"""The engine: read, decide, write once, reply. One module for each family of operations; `unit.py` is the one place
that writes.
"""
