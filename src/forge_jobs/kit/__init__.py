"""What touches the outside world on everybody's behalf: clocks, chance, loops, wake-ups, children.

Nothing in this room knows what a job is.
"""
