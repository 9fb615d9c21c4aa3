"""The Postgres backend, for one machine or many.

Server functions (``functions``) make the transitions, on the hot paths one round trip each. The
package connects by asyncpg, keeps no session state on the server, and needs at most four
connections per process.
"""
