"""The tables of typed settings: how a struct becomes a row, and a row a struct, for every store.

A table has the columns of its struct, in the order of the fields. So one description per namespace
replaces hand-written rows, and a new field needs a migration and nothing else.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar, get_origin

import msgspec
from msgspec import Struct, structs

from forge_jobs.core.errors import BadOption
from forge_jobs.core.limits import Limit
from forge_jobs.core.settings import check_name, check_setting
from forge_jobs.core.token_bucket import TokenBucket
from forge_jobs.store.queues import PublishedKind, QueueConfig
from forge_jobs.store.schedules import Schedule
from forge_jobs.store.settings import KIND, LIMIT, QUEUE, SCHEDULE, TOKEN_BUCKET, Setting

T = TypeVar("T", bound=Struct)


class ValuesByPosition(Protocol):
    """A result row of any driver."""

    def __getitem__(self, index: int, /) -> Any: ...


class SettingTable(Generic[T]):
    """One typed namespace.

    ``key``: the column of the setting's name. ``apart``: fields that are stored elsewhere.
    ``owns``: a table whose rows go with the setting, and the column there that holds its name.
    """

    def __init__(
        self,
        name: str,
        key: str,
        struct: type[T],
        *,
        apart: tuple[str, ...] = (),
        owns: tuple[str, str] | None = None,
    ) -> None:
        fields = [field for field in structs.fields(struct) if field.name not in apart]
        self.name = name
        self.key = key
        self.owns = owns
        self.columns = tuple(field.name for field in fields)
        self._decode = msgspec.json.Decoder(struct).decode
        self._struct = struct
        self._flags = tuple(field.name for field in fields if field.type is bool)
        self._arrays = tuple(field.name for field in fields if get_origin(field.type) is tuple)

    def parse(self, name: str, value: bytes) -> T:
        """The struct of a setting's value. BadOption for what cannot be stored under ``name``."""
        try:
            struct = self._decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadOption(f"the value of {name!r} in {self.name} is refused: {error}") from error
        if getattr(struct, self.key) != name:
            raise BadOption(f"the value of {name!r} in {self.name} has another {self.key}")
        return struct

    def struct_of(self, row: ValuesByPosition) -> T:
        """The struct of a row whose values are in the order of the columns."""
        fields = {column: row[index] for index, column in enumerate(self.columns)}
        for name in self._flags:
            fields[name] = bool(fields[name])
        for name in self._arrays:
            stored = fields[name]
            items = msgspec.json.decode(stored) if isinstance(stored, str) else stored
            fields[name] = tuple(items)
        return self._struct(**fields)

    def values_of(self, struct: T, array: Callable[[tuple[Any, ...]], object]) -> list[Any]:
        """The values of its row; ``array`` turns a tuple into what the column takes."""
        fields = {column: getattr(struct, column) for column in self.columns}
        for name in self._arrays:
            fields[name] = array(fields[name])
        return list(fields.values())

    def setting_of(self, struct: T) -> Setting:
        """The setting whose value is this struct."""
        return Setting(
            name=getattr(struct, self.key),
            value=msgspec.json.encode(struct),
            version=getattr(struct, "version", 1),
        )

    def statements(self, prefix: str, mark: str) -> dict[str, str]:
        """SQL by name. ``prefix`` stands before the names of tables. ``mark`` is the placeholder of
        a value: ``?``, or ``$n`` with its number. All but ``all`` use the primary key."""
        table, key, first = prefix + self.name, self.key, mark.replace("n", "1")
        columns = ", ".join(self.columns)
        marks = ", ".join(mark.replace("n", str(n)) for n in range(1, len(self.columns) + 1))
        replaced = ", ".join(f"{name} = EXCLUDED.{name}" for name in self.columns if name != key)
        # Only names of this module are in these texts, never data.
        insert = f"INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO"  # noqa: S608
        texts = {
            "get": f"SELECT {columns} FROM {table} WHERE {key} = {first}",  # noqa: S608
            "all": f"SELECT {columns} FROM {table} ORDER BY {key}",  # noqa: S608
            "insert": f"{insert} NOTHING",
            "put": f"{insert} UPDATE SET {replaced}",
            "delete": f"DELETE FROM {table} WHERE {key} = {first}",  # noqa: S608
        }
        if self.owns is not None:
            owned, column = self.owns
            texts["delete_owned"] = f"DELETE FROM {prefix}{owned} WHERE {column} = {first}"  # noqa: S608
        return texts


QUEUES: Final = SettingTable(
    "queues", "name", QueueConfig, apart=("gate",), owns=("gates", "queue")
)
KINDS: Final = SettingTable("kinds", "kind", PublishedKind)
LIMITS: Final = SettingTable("limits", "name", Limit)
SCHEDULES: Final = SettingTable("schedules", "name", Schedule, owns=("fires", "schedule"))
TOKEN_BUCKETS: Final = SettingTable("token_buckets", "scope", TokenBucket)

TABLES: Final[dict[str, SettingTable[Any]]] = {
    QUEUE: QUEUES,
    KIND: KINDS,
    LIMIT: LIMITS,
    SCHEDULE: SCHEDULES,
    TOKEN_BUCKET: TOKEN_BUCKETS,
}


def check_key(namespace: str, name: str) -> None:
    """BadName for a namespace or name that not every store can hold. The names of typed settings
    have rules of their own, which the classes above the contract check."""
    if namespace not in TABLES:
        check_name(namespace, name)


def parse(namespace: str, name: str, value: bytes, ttl_s: float | None) -> Any:
    """What is stored for a value: the struct of a typed setting, else the value. BadName or
    BadOption for what cannot be stored."""
    table = TABLES.get(namespace)
    if table is None:
        check_setting(namespace, name, value, ttl_s)
        return value
    if ttl_s is not None:
        raise BadOption(
            f"ttl_s={ttl_s} of setting {namespace}/{name}: typed settings do not expire"
        )
    return table.parse(name, value)
