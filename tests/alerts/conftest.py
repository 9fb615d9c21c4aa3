"""A receiver that may be reached though it is on this machine."""

from collections.abc import Iterator

import pytest

from rigs.storms.webhook_receiver import Receiver, receiving


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("FORGE_ALERT_HOSTS", "127.0.0.1")
    with receiving() as made:
        yield made
