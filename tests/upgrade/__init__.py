"""Two releases on one store, side by side."""

from typing import Final

# What the jobs of a producer carry by turns.
OPTIONS: Final = ("none", "timeout", "tags", "expiry", "lane", "key", "note")
# Numbers of jobs: so many for each round, and within it for each producer. Both are multiples of
# the number of options, so that jobs at the same place have the same option.
ROUND: Final = 7_000_000
PRODUCER: Final = 700_000
