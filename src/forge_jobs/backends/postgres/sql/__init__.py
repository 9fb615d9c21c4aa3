"""Named SQL statements of the Postgres backend."""
