"""Text that every store can hold."""


def storable(text: str) -> str:
    """The text without NUL characters and lone surrogates, which not every database can hold."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
