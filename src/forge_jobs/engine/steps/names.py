"""Which steps a run has called: their identities, and which of them are open."""

from msgspec import Struct

from forge_jobs.core.errors import BadStep
from forge_jobs.core.steps import shown_step, step_identity, step_key, step_name


class CalledStep(Struct, frozen=True, gc=False):
    """One call. ``identity`` is fixed when it is called, not when it starts."""

    name: str
    identity: str
    is_keyed: bool

    @property
    def shown(self) -> str:
        """The name as people read it."""
        return shown_step(self.identity)


class StepNames:
    """The identities of one run's calls.

    Calls without a key are numbered in the order of their calls; the number advances when a call
    has returned, so that a call that raised is repeated under the same identity.
    """

    __slots__ = ("_numbers", "_open", "_returned")

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._open: dict[str, CalledStep] = {}
        self._returned: set[str] = set()

    def call(self, name: object, key: object = None, *, is_sync: bool = False) -> CalledStep:
        """The identity of a new call. BadName, or BadStep if it cannot be told from another.

        A call that blocks (``is_sync``) is open for nobody else, and does not count as open: a
        signal handler may raise before it can be closed.
        """
        text = step_name(name)
        if key is not None:
            return self._call_with_key(text, step_key(key), is_sync)
        number = self._numbers.get(text, 1)
        step = CalledStep(text, step_identity(text, number=number), False)
        if step.identity in self._open:
            raise BadStep(
                f"step {text!r} is called while an earlier call of that name is open: await one "
                "after the other, or tell them apart with "
                f"ctx.step.using(key=...)({text!r}, ...)"
            )
        if not is_sync:
            self._open[step.identity] = step
        return step

    def close(self, step: CalledStep, *, returned: bool) -> None:
        """The call has ended; ``returned``: with a value or a stored error."""
        self._open.pop(step.identity, None)
        if not returned:
            return
        if step.is_keyed:
            self._returned.add(step.identity)
        else:
            self._numbers[step.name] = self._numbers.get(step.name, 1) + 1

    @property
    def open(self) -> list[str]:
        """The open calls, as people read their names."""
        return [step.shown for step in self._open.values()]

    def _call_with_key(self, name: str, key: str, is_sync: bool) -> CalledStep:
        step = CalledStep(name, step_identity(name, key=key), True)
        if step.identity in self._open or step.identity in self._returned:
            raise BadStep(
                f"step {step.shown!r} is called twice in one run: each call of a name needs a key "
                "of its own"
            )
        if not is_sync:
            self._open[step.identity] = step
        return step
