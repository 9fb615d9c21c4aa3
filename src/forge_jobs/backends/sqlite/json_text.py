"""Values as JSON text: a statement takes or returns a list of any size in one step."""

import msgspec

_keys_of = msgspec.json.Decoder(list[int]).decode
_encode = msgspec.json.encode


def read_keys(text: str) -> list[int]:
    """Keys from a JSON list."""
    return _keys_of(text)


def as_json(values: object) -> str:
    """Values as the JSON text that statements take."""
    return _encode(values).decode()
