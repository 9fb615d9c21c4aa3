"""Jobs in Postgres, for one machine or many.

The server does the moves (``migrations``), in one round trip each where it matters; this package
speaks to it through asyncpg, keeps no session state there, and needs at most four connections per
process.
"""
