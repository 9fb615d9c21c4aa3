"""Counts by tag in the tables of a row-wise store."""

from collections.abc import Sequence

from forge_jobs.core.tag_counts import (
    TagPart,
    change_day,
    days_of,
    kept_weights,
    touched_tags,
)

from .tables import Tables


def add(tables: Tables, parts: Sequence[TagPart]) -> None:
    """Add what a transaction counted to the days of its tags."""
    for day, incoming in days_of(parts).items() if parts else ():
        stored = {tag: row.weight for (at, tag), row in tables.tag_days.items() if at == day}
        kept = kept_weights(stored, incoming)
        touched = touched_tags(kept, stored, incoming)
        change = change_day(kept, [tables.tag_days[day, tag] for tag in touched], incoming)
        for tag in change.delete:
            del tables.tag_days[day, tag]
        for row in change.put:
            tables.tag_days[day, row.tag] = row
