"""Pure decisions: what a job is, which states it may take, and what an outcome leads to.

Nothing in this room reads a clock, rolls dice, touches a file or imports another room.
"""
