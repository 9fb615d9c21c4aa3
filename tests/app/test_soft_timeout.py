"""``soft_timeout=`` as users give it: on a task, on single jobs, by kind, on a handler object."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs import BadDuration, BadOption, Context, DeadJob, Forge


@pytest.mark.parametrize("span", ["1m30s", 90, 90.0, timedelta(seconds=90)])
def test_every_form_of_a_duration(forge: Forge, span: Any) -> None:
    @forge.task(timeout="10m", soft_timeout=span)
    def job() -> None: ...

    @forge.task
    def plain() -> None: ...

    wanted = {"soft_timeout_s": 90.0}
    assert job.bind().options == wanted
    assert plain.using(soft_timeout=span).bind().options == wanted
    assert plain.bind().options is None
    assert forge.request("job", {}).options == wanted


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"soft_timeout": 0}, BadOption, "soft_timeout=0 must be longer than zero; None means no"),
        ({"soft_timeout": -1}, BadDuration, "soft_timeout=-1 is not a duration"),
        ({"soft_timeout": "soon"}, BadDuration, "soft_timeout='soon'"),
        ({"soft_timeout": True}, BadDuration, "soft_timeout=True"),
        (
            {"soft_timeout": "1m", "timeout": "60s"},
            BadOption,
            "soft_timeout= (60 s) must be shorter than timeout= (60 s), which stops the handler: "
            "shorten soft_timeout= or lengthen timeout=",
        ),
        ({"soft_timout": 5}, BadOption, "did you mean 'soft_timeout'?"),
    ],
)
def test_bad_values_name_the_option_and_the_remedy(
    forge: Forge, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    @forge.task
    def job() -> None: ...

    for call in (
        lambda: forge.task(kind="other", **options)(lambda: None),
        lambda: job.using(**options),
        lambda: forge.enqueue("job", {}, **options),
        lambda: forge.enqueue("elsewhere", {}, **options),
    ):
        with pytest.raises(error) as caught:
            call()
        assert message in str(caught.value)
    assert "other" not in forge.tasks


def test_single_jobs_differ_from_their_task(forge: Forge) -> None:
    @forge.task(timeout="60s", soft_timeout="50s")
    def job() -> None: ...

    assert job.using(soft_timeout="10s").bind().options == {"soft_timeout_s": 10.0}
    assert job.using(soft_timeout=None).bind().options == {"soft_timeout_s": None}
    longer = job.using(timeout="10m", soft_timeout="9m").bind()
    assert (longer.timeout_s, longer.options) == (600.0, {"soft_timeout_s": 540.0})
    with pytest.raises(BadOption, match=r"soft_timeout= \(70 s\) must be shorter than timeout= "):
        job.using(soft_timeout="70s")
    with pytest.raises(BadOption, match="must be shorter"):
        job.using(timeout="30s").using(soft_timeout="30s")
    # A task that gets a soft timeout refuses no job that it took before.
    shorter = job.using(timeout="5s").bind()
    assert (shorter.timeout_s, shorter.options) == (5.0, {"soft_timeout_s": 4.5})


def test_a_task_without_one_keeps_the_short_paths(forge: Forge) -> None:
    @forge.task(soft_timeout=None)
    def job() -> None: ...

    assert job.bind().options is None


def test_dead_letters_get_that_of_their_own_task(forge: Forge) -> None:
    @forge.task(soft_timeout="5s")
    def report(job: DeadJob) -> None: ...

    @forge.task(on_dead=report)
    def work() -> None: ...

    on_dead = work.bind().on_dead
    assert on_dead is not None
    assert on_dead.options == {"soft_timeout_s": 5.0}


async def test_a_producer_without_the_task(shared_url: str) -> None:
    async with Forge(shared_url) as working, Forge(shared_url) as producer:

        @working.task(timeout="2m", soft_timeout="0.05s")
        async def wrap_up(ctx: Context) -> list[str]:
            try:
                async with ctx.until_soft_timeout():
                    await asyncio.sleep(120)
            except TimeoutError:
                return ["told"]
            return []

        async with working.worker(queues=["default"]):
            job = await producer.aenqueue("wrap_up", {})
            own = await producer.aenqueue("wrap_up", {}, soft_timeout="0.1s")
            assert await job.aresult(timeout=60) == ["told"]
            assert await own.aresult(timeout=60) == ["told"]
        store = await producer.aready()
        records = [await store.jobs.get(one.id) for one in (job, own)]
        expected = [{"soft_timeout_s": 0.05}, {"soft_timeout_s": 0.1}]
        assert [record and record.options for record in records] == expected


async def test_a_handler_object(forge: Forge) -> None:
    class Slow:
        kind = "slow"

        async def run(self, ctx: Context, payload: Any) -> bool:
            while not ctx.soft_timeout_reached:
                await asyncio.sleep(0.005)
            return ctx.cancelled

    with pytest.raises(BadOption, match=r"forge\.register\(\.\.\.\): soft_timeout= \(2 s\) must"):
        forge.register(Slow(), timeout=1, soft_timeout=2)
    forge.register(Slow(), queue="default", timeout="2m", soft_timeout="50ms")
    async with forge.worker(queues=["default"]):
        job = await forge.aenqueue("slow", {})
        assert await job.aresult(timeout=60) is False
