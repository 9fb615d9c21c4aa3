"""Rules that code and forge.toml declare, and operators' changes of them."""

from pathlib import Path

import pytest

from forge_jobs import BadConfig, BadOption, Forge, config
from forge_jobs.config import read_file
from forge_jobs.engine.requests.declared_alerts import ensure_alerts
from forge_jobs.ops.alerts import AlertActions
from forge_jobs.store.alerts import AlertRules


async def test_a_worker_stores_declared_rules_and_keeps_what_operators_changed() -> None:
    async with Forge("memory://") as forge:
        forge.alert("late", "longest_wait", above="5m", queue="mail")
        forge.alert("full", "backlog", above=10)
        async with forge.worker(["mail"]):
            pass
        store = await forge.aready()
        await AlertActions(store, actor="ops").edit("late", {"above": 60})
        forge.registry.alerts.clear()
        forge.alert("late", "longest_wait", above="1h", queue="mail")
        forge.alert("full", "backlog", above=20)
        await ensure_alerts(store, forge.registry.alerts.values())
        assert {one.name: one.above for one in await AlertRules(store).all()} == {
            "full": 20, "late": 60,
        }  # fmt: skip


def test_a_rule_is_declared_once_and_its_options_are_checked() -> None:
    forge = Forge("memory://")
    forge.alert("full", "backlog")
    with pytest.raises(BadOption, match="declared twice"):
        forge.alert("full", "backlog")
    with pytest.raises(BadOption, match="min_jobs"):
        forge.alert("dead", "dead_rate", min_job=3)  # type: ignore[call-arg]


def test_forge_toml_declares_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "0123456789abcdef")
    path = tmp_path / "forge.toml"
    path.write_text(
        '[alerts.late]\ncondition = "longest_wait"\nabove = "5m"\nfor = "1m"\n'
        'url = "https://hooks.example/x"\nsecret_env = "HOOK_SECRET"\nquiet = ["22:00-07:00"]\n'
    )
    (rule,) = read_file(path).alerts
    assert (rule.name, rule.above, rule.for_s, rule.secret) == (
        "late", 300, 60, "0123456789abcdef",
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    # Each worker of a process reads them.
    assert config.alerts() == config.alerts() == (rule,)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[alerts]\nlate = 1\n", "must be a table with condition"),
        ("[alerts.late]\nabove = 1\n", "condition is missing"),
        ('[alerts.late]\ncondition = "backlog"\nqueues = 1\n', "unknown key 'queues'"),
        ('[alerts.late]\ncondition = "backlog"\nabove = "x"\n', "alerts.late: above='x'"),
        ('[alerts.late]\ncondition = "backlog"\nsecret_env = "NO_SUCH"\n', "'NO_SUCH'"),
    ],
)
def test_faults_of_forge_toml_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "forge.toml"
    path.write_text(text)
    with pytest.raises(BadConfig, match=complaint):
        read_file(path)
