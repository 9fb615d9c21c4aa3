"""An application whose task declares every option, and a store that its worker has visited."""

from collections.abc import Iterator

import pytest

from forge_jobs import EngineSettings, Forge
from forge_jobs.core.dead_letter import DeadJob

DEADLINE_S = 30.0
SETTINGS = EngineSettings(shutdown_s=10.0)


def application(url: str) -> Forge:
    """The program that has the code: a payment that must run once, and what follows its death."""
    forge = Forge(url, settings=SETTINGS)

    @forge.task(queue="desk", max_attempts=2, priority=-4, tags=["ticket"], timeout="9s")
    def tell(job: DeadJob) -> None: ...

    @forge.task(
        queue="pay",
        max_attempts=1,
        priority=7,
        timeout="30s",
        soft_timeout="20s",
        tags=["billing"],
        lane="ledger",
        order="serial",
        on_dead=tell,
        concurrency=2,
        per="args.account",
        payload_limit=200,
    )
    def charge(account: str, amount: int = 1) -> None:
        raise OSError("the bank does not answer")

    return forge


async def publish(forge: Forge) -> None:
    """Start a worker that serves none of the queues, and stop it again."""
    async with forge.worker(queues=["elsewhere"]):
        pass


@pytest.fixture
def app(shared_url: str) -> Iterator[Forge]:
    made = application(shared_url)
    yield made
    made.close()


@pytest.fixture
def other(shared_url: str) -> Iterator[Forge]:
    """A program without the code, on the same store."""
    made = Forge(shared_url, settings=SETTINGS)
    yield made
    made.close()
