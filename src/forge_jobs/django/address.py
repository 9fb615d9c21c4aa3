"""The address of the store, from ``DATABASES`` and the ``OPTIONS`` of a task backend."""

import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from .django_api import ImproperlyConfigured, connections

OPTIONS: Final = ("database", "url", "schema", "pooler", "listen_url", "queues", "defaults")
_OF_POSTGRES: Final = ("schema", "pooler", "listen_url")
# Parameters of libpq in DATABASES[…]["OPTIONS"] that asyncpg understands as well.
_OF_LIBPQ: Final = (
    "sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "passfile", "service",
    "target_session_attrs", "krbsrvname", "gsslib",
)  # fmt: skip


def database_of(options: Mapping[str, Any]) -> str:
    """The alias of the database whose transactions jobs join."""
    return options.get("database", "default")


def store_url(options: Mapping[str, Any]) -> str:
    """The address of the store. ``memory://`` stands for SQLite in memory, which Django uses for
    tests. ImproperlyConfigured for a database that cannot hold jobs."""
    url = options.get("url")
    return _database_url(database_of(options), options) if url is None else url


def joins(options: Mapping[str, Any]) -> bool:
    """Whether jobs are in the database of the alias, so that its transactions can hold them."""
    url = options.get("url")
    if url is None:
        return True
    try:
        own = _database_url(database_of(options), options)
    except ImproperlyConfigured:
        return False
    return _without_options(own) == _without_options(url)


def _database_url(alias: str, options: Mapping[str, Any]) -> str:
    if alias not in connections.settings:
        known = ", ".join(map(repr, connections.settings))
        raise ImproperlyConfigured(
            f"TASKS: OPTIONS['database'] is {alias!r}, but DATABASES has only {known}"
        )
    connection: Any = connections[alias]
    match connection.vendor:
        case "postgresql":
            return _postgres(connection.settings_dict, options)
        case "sqlite":
            if connection.is_in_memory_db():
                return f"memory://django-{alias}"
            path = os.path.abspath(str(connection.settings_dict["NAME"]))
            return f"sqlite:///{quote(path)}"
        case vendor:
            raise ImproperlyConfigured(
                f"Forge Jobs has no store on {vendor}: put OPTIONS['database'] to a database on "
                "PostgreSQL or SQLite, or OPTIONS['url'] to the address of a store"
            )


def _postgres(settings: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    host, port = str(settings.get("HOST") or ""), str(settings.get("PORT") or "")
    user, password = str(settings.get("USER") or ""), settings.get("PASSWORD") or ""
    query = {
        name: str(value)
        for name, value in settings.get("OPTIONS", {}).items()
        if name in _OF_LIBPQ and value is not None
    }
    query |= {name: str(options[name]) for name in _OF_POSTGRES if options.get(name) is not None}
    netloc = quote(user, safe="")
    if password:
        netloc += f":{quote(str(password), safe='')}"
    netloc += "@" if netloc else ""
    if host.startswith("/") or not host:
        # A socket has no place in front of the path.
        query |= {"host": host} if host else {}
        query |= {"port": port} if port else {}
    else:
        netloc += f"[{host}]" if ":" in host else host
        netloc += f":{port}" if port else ""
    end = f"?{urlencode(query)}" if query else ""
    return f"postgresql://{netloc}/{quote(str(settings['NAME'] or ''), safe='')}{end}"


def _without_options(url: str) -> str:
    """An address without its options."""
    return url.partition("?")[0].replace("postgres://", "postgresql://")
