"""What the steps storm runs, as its jobs, its producer and its checks know it."""

STEPS = 10
EVENT = "go"
# Of the task that differs between the versions of the application: the step that the newer one
# calls by another name, the one that it has no more, and the one that it has in addition.
RENAMED, REMOVED, INSERTED = 4, 7, 10
VERSIONS = ("old", "new")
PAYMENTS = "storm_payments"


def value_of(name: str, step: int) -> str:
    """The value of a step."""
    return f"{name}:{step}"


def event_for(name: str) -> str:
    """The event that a workflow waits for."""
    return f"event for {name}"


def expected(name: str) -> list[str]:
    """The result of a workflow."""
    return [*(value_of(name, step) for step in range(STEPS)), event_for(name)]
