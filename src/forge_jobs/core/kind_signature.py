"""What a worker's version of a kind takes, and what it means that stored arguments do not fit.

Every worker process publishes the signatures of its kinds when it registers. A process that refuses
a job reads them to find out whether a worker of another version may take it (docs/decisions/0115).
"""

from collections.abc import Iterable

from msgspec import Struct

from .errors import BadArguments


class KindSignature(Struct, frozen=True, omit_defaults=True):
    """The arguments that one version of a kind takes, by name.

    ``extra``: any other name too. ``types`` is a fingerprint of the argument types; two signatures
    with the same one read the same values.
    """

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    extra: bool = False
    types: str = ""

    def misfit(self, names: Iterable[str]) -> str | None:
        """What does not fit in a call with arguments of these names; None when it fits."""
        given = set(names)
        unknown = [] if self.extra else sorted(given.difference(self.required, self.optional))
        missing = [name for name in self.required if name not in given]
        parts = [
            f"{word} {'argument' if len(found) == 1 else 'arguments'} {', '.join(map(repr, found))}"
            for word, found in (("unknown", unknown), ("missing", missing))
            if found
        ]
        return ", ".join(parts) or None

    def may_take(self, names: Iterable[str] | None, *, unlike: "KindSignature | None") -> bool:
        """Whether a worker with this signature may take a job that one with ``unlike`` refused
        because of a value (None: because of the names). ``names`` None: they are not known."""
        if names is not None and self.misfit(names) is not None:
            return False
        return unlike is None or self != unlike


TAKES_ANYTHING = KindSignature(extra=True)


class ArgumentMismatch(BadArguments):
    """The stored arguments of a job do not fit this process's signature of the kind.

    Raised before the handler is called, so that it cannot be confused with BadArguments of the
    handler itself. ``names`` are the names of the arguments, None when the payload is no object.
    ``by_value``: the names fit, but a value has another type.
    """

    def __init__(self, text: str, *, names: tuple[str, ...] | None, by_value: bool) -> None:
        super().__init__(text)
        self.names = names
        self.by_value = by_value
