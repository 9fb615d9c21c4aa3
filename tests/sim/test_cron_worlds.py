"""Cron with faults: each tick fires once, despite crashes, stalls and clock changes."""

from collections import Counter
from typing import Any

import pytest

from forge_jobs.backends.memory.store import MemoryStore
from rigs.simulation import __main__ as command
from rigs.simulation import cron_world
from rigs.simulation.cron_checker import check_cron
from rigs.simulation.cron_world import CronOptions, CronResult, simulate_cron

seen: Counter[str] = Counter()


def a_day(seed: int) -> CronResult:
    """In every fourth simulation all nodes act as leader."""
    return simulate_cron(seed, CronOptions(days=1.0, all_lead=seed % 4 == 3))


@pytest.mark.parametrize("batch", range(2))
def test_ten_seeds_fire_each_tick_exactly_once(batch: int) -> None:
    for seed in range(batch, 10, 2):
        ended = a_day(seed)
        assert check_cron(ended) == [], f"seed {seed}"
        assert len(ended.fired) > 500
        seen.update(ended.faults)
        seen["lost races"] += ended.lost_races


def test_every_injected_error_had_an_effect() -> None:
    if not seen:
        pytest.fail("the simulations of the test before did not run")
    for name in ("crash", "stall", "cut", "clock", "shutdown", "lost races"):
        assert seen[name] > 0, name


def test_a_cron_simulation_is_deterministic() -> None:
    options = CronOptions(days=0.25)
    first, second = simulate_cron(3, options), simulate_cron(3, options)
    assert first.fired == second.fired
    assert len(first.fired) > 80


def test_the_checker_detects_a_missing_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: a store that fires every requested tick."""

    class Careless(MemoryStore):
        def __init__(self, *parts: Any) -> None:
            super().__init__(*parts)
            real = self.schedules.fire

            async def fire(name: str, *, tick: int, next_at: int | None, new_fires: Any) -> Any:
                known = await self.schedules.get(name)
                assert known is not None
                tick = tick if known.next_at is None else known.next_at
                return await real(name, tick=tick, next_at=next_at, new_fires=new_fires)

            self.schedules.fire = fire  # type: ignore[method-assign]

    monkeypatch.setattr(cron_world, "MemoryStore", Careless)
    broken = check_cron(simulate_cron(3, CronOptions(days=0.25, all_lead=True)))
    assert any("fired twice" in text for text in broken)


def test_the_checker_detects_a_lost_tick() -> None:
    ended = simulate_cron(1, CronOptions(days=0.25))
    for place, name in ((10, "quarter"), (20, "collapsing"), (30, "forgetful")):
        kept = [one for one in ended.fired if one.name == name]
        cut = [one for one in ended.fired if one is not kept[place] and one is not kept[-1]]
        whole, ended.fired = ended.fired, cut
        assert any(text.startswith(name) for text in check_cron(ended)), name
        ended.fired = whole
    assert check_cron(ended) == []


def test_the_command_runs_cron_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--cron", "--seeds", "1", "--days", "0.2", "--twice"]) == 0
    assert "each tick fired exactly once" in capsys.readouterr().out
