"""``UNSET``: stands for an argument that was not given, where None means something."""

from typing import Final


class Unset:
    """The class of ``UNSET``."""

    def __repr__(self) -> str:
        return "<not given>"


UNSET: Final = Unset()
