"""``forge db``: creates, migrates, describes and removes the database."""

from typing import TYPE_CHECKING

import typer

from forge_jobs.kit import redact
from forge_jobs.ops.doctor import SchemaStatus
from forge_jobs.ops.views import to_json

from . import terminal
from .exit_codes import Stop
from .options import AsJson, Force, Url
from .session import with_forge

if TYPE_CHECKING:
    from forge_jobs.app import Forge

app = typer.Typer(
    no_args_is_help=True,
    help="Create, migrate and remove the database.\n\n\b\nExample:\n  forge db status",
)


@app.command()
def create(url: Url = None, as_json: AsJson = False) -> None:
    """Create the database with its schema; no effect if it exists.

    \b
    Example:
      forge db create --url sqlite:///forge.db
    """
    _migrate(url, as_json, "created")


@app.command()
def migrate(url: Url = None, as_json: AsJson = False) -> None:
    """Migrate the schema to the version of this release.

    \b
    Example:
      FORGE_URL=sqlite:///forge.db forge db migrate
    """
    _migrate(url, as_json, "migrated")


@app.command()
def status(url: Url = None, as_json: AsJson = False) -> None:
    """Show the version of the schema and the one this release needs.

    \b
    Example:
      forge db status --json
    """

    async def work(forge: "Forge") -> tuple[SchemaStatus, dict[str, str]]:
        return await forge.store.maintenance.schema_status(), forge.store.maintenance.describe()

    found, described = with_forge(url, work)
    if as_json:
        document = {
            "current": found.current,
            "wanted": found.wanted,
            "compatible": found.compatible,
            "outdated_functions": found.outdated_functions,
            "store": described,
        }
        terminal.write_json(to_json(document))
        return
    current = "none" if found.current is None else str(found.current)
    pairs = [pair for pair in described.items() if pair[0] != "schema"]
    pairs.append(("schema", f"{current} (wanted {found.wanted}): {_state(found)}"))
    pairs.append(("compatible", f"with releases that know schema {found.compatible} or later"))
    if found.outdated_functions:
        pairs.append(("functions", f"missing or old: {', '.join(found.outdated_functions)}"))
    terminal.console().print(terminal.facts(pairs))


@app.command()
def drop(force: Force = False, url: Url = None, as_json: AsJson = False) -> None:
    """Remove the database and every job in it. Needs --force.

    Tables of the application in the same database stay.

    \b
    Example:
      forge db drop --force
    """

    async def work(forge: "Forge") -> str:
        _require_force(force, forge, "drop")
        await forge.store.maintenance.drop()
        return redact.url(forge.url)

    address = with_forge(url, work)
    if as_json:
        terminal.write_json(to_json({"dropped": address}))
    else:
        terminal.console().print(f"Dropped {address}.", soft_wrap=True)


@app.command()
def reset(force: Force = False, url: Url = None, as_json: AsJson = False) -> None:
    """Remove the database with every job in it and create an empty one. Needs --force.

    Tables of the application in the same database stay.

    \b
    Example:
      forge db reset --force
    """

    async def work(forge: "Forge") -> SchemaStatus:
        _require_force(force, forge, "reset")
        await forge.store.maintenance.drop()
        return await forge.store.maintenance.migrate()

    _print_schema(with_forge(url, work), as_json, "reset", "")


def _state(found: SchemaStatus) -> str:
    """What the schema's numbers mean for this release, and what to do."""
    if found.current is None:
        return "run: forge db create"
    if found.is_too_new:
        return "needs a newer release: upgrade forge-jobs"
    if not found.is_complete:
        return "run: forge db migrate"
    if found.current > found.wanted:
        return "newer than this release, and compatible"
    return "up to date"


def _migrate(url: str | None, as_json: bool, verb: str) -> None:
    async def work(forge: "Forge") -> tuple[SchemaStatus, SchemaStatus, str]:
        before = await forge.store.maintenance.schema_status()
        return before, await forge.store.maintenance.migrate(), redact.url(forge.url)

    before, after, address = with_forge(url, work)
    result = "already up to date" if before == after else verb
    _print_schema(after, as_json, result, address)


def _print_schema(after: SchemaStatus, as_json: bool, result: str, address: str) -> None:
    if as_json:
        terminal.write_json(
            to_json({"result": result, "current": after.current, "wanted": after.wanted})
        )
    else:
        prefix = f"{address}: " if address else ""
        text = f"{prefix}{result}, schema version {after.current}."
        terminal.console().print(text, soft_wrap=True)


def _require_force(force: bool, forge: "Forge", verb: str) -> None:
    if not force:
        address = redact.url(forge.url)
        raise Stop(
            f"{verb} removes {address} with every job in it: repeat with --force",
            code="needs_force",
        )
