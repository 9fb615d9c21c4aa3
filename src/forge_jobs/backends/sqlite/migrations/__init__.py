"""The schema, one numbered file per step; a file that was released is never changed again."""
