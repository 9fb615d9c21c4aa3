"""The signal that unwinds a handler whose run parks."""


class Suspended(BaseException):
    """Raised by ``ctx.sleep`` and ``ctx.wait_for`` when the run ends here for now. It is no
    ``Exception``, so that ``except Exception`` around a wait does not stop it; ``finally`` blocks
    run."""

    def __init__(self) -> None:
        super().__init__(
            "this run ends here for now: the handler must let this signal pass (catch Exception, "
            "not BaseException)"
        )


def is_suspended(error: BaseException) -> bool:
    """Whether a handler ended with the signal, alone or in a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_suspended, error.exceptions))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return isinstance(error, Suspended)
