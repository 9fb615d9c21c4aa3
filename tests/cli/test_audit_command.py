"""``forge audit``."""

from tests.cli.conftest import InProcess


def test_actions_are_listed_with_their_actor(on_file: InProcess) -> None:
    on_file.forge("enqueue", "send", "--queue", "mail")
    on_file.forge("queues", "pause", "mail")
    on_file.forge("queues", "resume", "mail")
    page = on_file.forge("audit", "--json").data
    assert [entry["action"] for entry in page["entries"]] == ["resume", "pause"]
    assert page["entries"][0]["actor"].startswith("cli:")
    shown = on_file.forge("audit", "--action", "pause").out
    assert "pause" in shown
    assert "resume" not in shown
