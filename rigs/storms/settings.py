"""The settings storm: the kill storm on Postgres, once per setting that a role may have.

An administrator gives a role or a database other defaults than those of a new server. Jobs must be
as safe under each of them; where a default makes work impossible, the first process says so.
"""

from dataclasses import replace

from rigs.storms import counters
from rigs.storms.arguments import StormArguments, print_report
from rigs.storms.checks import check
from rigs.storms.databases import on_server
from rigs.storms.kills import QUICK, KillOptions, KillRig
from rigs.storms.rig import StormFailed
from tests.postgres.server import private_server

BACKENDS = ("postgres",)
# One storm each; a tuple of pairs is set together.
SETTINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "serializable": (("default_transaction_isolation", "serializable"),),
    "repeatable read": (("default_transaction_isolation", "repeatable read"),),
    "deferrable": (
        ("default_transaction_isolation", "serializable"),
        ("default_transaction_deferrable", "on"),
    ),
    "old strings": (("standard_conforming_strings", "off"),),
    "lock timeout": (("lock_timeout", "50ms"),),
    "statement timeout": (("statement_timeout", "2s"),),
    "idle in transaction": (("idle_in_transaction_session_timeout", "200ms"),),
    "styles": (
        ("DateStyle", "SQL, DMY"),
        ("IntervalStyle", "sql_standard"),
        ("TimeZone", "Asia/Kathmandu"),
        ("bytea_output", "escape"),
        ("extra_float_digits", "-4"),
        ("client_encoding", "LATIN1"),
    ),
    "search path": (("search_path", "pg_catalog"),),
    "planner": (
        ("enable_indexscan", "off"),
        ("enable_bitmapscan", "off"),
        ("jit_above_cost", "0"),
        ("plan_cache_mode", "force_custom_plan"),
    ),
    "asynchronous": (("synchronous_commit", "off"),),
    "small memory": (("work_mem", "64kB"), ("temp_buffers", "100")),
}


def storm(backend: str, arguments: StormArguments) -> bool:
    """Run the storm with each setting; True if every check passed each time."""
    options = arguments.apply(replace(QUICK, jobs=2_000, kills=20), replace(QUICK, kills=6))
    failed = [name for name in SETTINGS if not _storm(name, options, arguments)]
    if failed:
        print(f"FAILED under: {', '.join(failed)}")
    return not failed


def _storm(name: str, options: KillOptions, arguments: StormArguments) -> bool:
    told = ", ".join(f"{setting} = {value}" for setting, value in SETTINGS[name])
    print(f"Settings storm ({told}): {options.jobs:,} jobs, seed {options.seed}.", flush=True)
    try:
        with arguments.folder() as folder, private_server() as server:
            server.sql(
                *(f"ALTER ROLE postgres SET {key} = '{value}'" for key, value in SETTINGS[name])
            )
            database = on_server(server)
            try:
                report = check(KillRig(options, folder, database, lambda line: None).run())
            finally:
                database.close()
            report.findings["counters unlike the rows"] = counters.differences(database.url)
            if not print_report(report):
                raise StormFailed("a check failed")
    except StormFailed as failure:
        print(f"FAILED ({name}): {failure}")
        return False
    return True
