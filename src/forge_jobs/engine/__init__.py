"""Claims jobs, runs their handlers and records how they ended.

The store decides what is true; this room never believes that a claim is still its own.
"""
