"""Reads of jobs: one by id, pages by filter and cursor, peeks."""

import pytest

from forge_jobs.core import ids
from forge_jobs.core import payload as json_payload
from forge_jobs.core.errors import BadOption
from forge_jobs.core.instant import SECOND
from forge_jobs.core.outcome import Dead, Done, Failed
from forge_jobs.core.selection import BulkAction, Filter, Selection
from forge_jobs.core.status import JobStatus
from forge_jobs.store.jobs import Peek
from forge_jobs.store.store import Store
from forge_jobs.testing.clock import MovableClock

from .worker import Process, enqueue, new_job, record


@pytest.mark.asyncio
class TestGet:
    """``JobStore.get`` and ``peek``."""

    async def test_unknown_and_foreign_ids_find_nothing(
        self, store: Store, clock: MovableClock
    ) -> None:
        answer = await enqueue(store)
        now = clock.now()
        strangers = [
            "",
            "nonsense",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "Z" * 26,
            answer.id[:-1],
            answer.id + "0",
            "%" * 26,
            ids.job_id(answer.key, now, store.tag ^ 1),
            ids.job_id(answer.key, now + 1_000, store.tag),
            ids.job_id(answer.key + 1, now, store.tag),
            ids.job_id((1 << 64) - 1, now, store.tag),
            ids.job_id(0, now, store.tag),
        ]
        assert [await store.jobs.get(stranger) for stranger in strangers] == [None] * len(strangers)
        assert await store.jobs.peek(strangers) == [None] * len(strangers)
        assert [await store.metrics.logs(stranger) for stranger in strangers] == [
            [] for _ in strangers
        ]

    async def test_an_id_in_small_letters_is_the_same_id(self, store: Store) -> None:
        answer = await enqueue(store)
        assert (await record(store, answer.id.lower())).id == answer.id

    async def test_peek_answers_in_the_order_of_the_ids(
        self, store: Store, worker: Process
    ) -> None:
        answers = await store.jobs.enqueue([new_job() for _ in range(4)])
        done, dead, failed = await worker.claim(free=3)
        await worker.send_finishes(
            worker.build_finish(done, result=b'{"ok":true}'),
            worker.build_finish(dead, Dead("boom")),
            worker.build_finish(failed, Failed("again")),
        )
        seen = await store.jobs.peek([answers[2].id, "?", answers[0].id, answers[1].id])
        assert seen == [
            Peek(JobStatus.FAILED, None, "again"),
            None,
            Peek(JobStatus.DONE, b'{"ok":true}', None),
            Peek(JobStatus.DEAD, None, "boom"),
        ]
        assert await store.jobs.peek([answers[3].id]) == [Peek(JobStatus.PENDING)]
        assert await store.jobs.peek([]) == []

    async def test_peek_at_many(self, store: Store) -> None:
        answers = await store.jobs.enqueue([new_job() for _ in range(1_100)])
        seen = await store.jobs.peek([answer.id for answer in answers])
        assert seen == [Peek(JobStatus.PENDING)] * 1_100

    async def test_a_large_result_comes_back(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        result = b'"' + b"r" * 200_000 + b'"'
        await worker.finish(await worker.claim_one(), Done(), result=result)
        assert (await record(store, answer.id)).result == result
        assert await store.jobs.peek([answer.id]) == [Peek(JobStatus.DONE, result)]

    async def test_done_without_a_result(self, store: Store, worker: Process) -> None:
        answer = await enqueue(store)
        await worker.finish(await worker.claim_one(), Done())
        assert (await record(store, answer.id)).result is None

    async def test_the_end_of_an_id_finds_the_job(self, store: Store) -> None:
        first = await enqueue(store, kind="first")
        second = await enqueue(store, kind="second")
        for answer, kind in ((first, "first"), (second, "second")):
            for end in (answer.id[-8:], answer.id[-8:].lower()):
                found = await store.jobs.get(end)
                assert found is not None
                assert (found.id, found.kind) == (answer.id, kind)
        beyond = ids.job_id(second.key + 1, 0, store.tag)[-8:]
        foreign = ids.job_id(first.key, 0, store.tag ^ 1)[-8:]
        for end in (beyond, foreign, first.id[-7:], first.id[-9:], "ILOU0000"):
            assert await store.jobs.get(end) is None


@pytest.mark.asyncio
class TestPages:
    """``JobStore.page``."""

    async def test_newest_first_through_live_and_ended_jobs(
        self, store: Store, worker: Process
    ) -> None:
        for n in range(9):
            await enqueue(store, kind=f"k{n}", delay_s=0.0 if n % 3 else 60.0)
        for job in await worker.claim(free=4):
            await worker.finish(job, Done())
        kinds: list[str] = []
        sizes: list[int] = []
        cursor = None
        for _ in range(9):
            page = await store.jobs.page(Filter(), limit=4, after=cursor)
            kinds.extend(job.kind for job in page.jobs)
            sizes.append(len(page.jobs))
            cursor = page.next
            if cursor is None:
                break
        assert kinds == [f"k{n}" for n in range(8, -1, -1)]
        assert sizes == [4, 4, 1]

    async def test_a_page_shows_the_whole_job(self, store: Store, worker: Process) -> None:
        answers = await store.jobs.enqueue(
            [new_job(payload=b"[1]", tags=("a",)), new_job(payload=b"[" + b"1," * 2_000 + b"1]")]
        )
        await worker.finish(await worker.claim_one(), Failed("x"))
        page = await store.jobs.page(Filter(), limit=10)
        assert list(page.jobs) == [await record(store, answer.id) for answer in answers[::-1]]

    async def test_the_cursor_is_stable_while_jobs_come_and_go(self, store: Store) -> None:
        answers = [await enqueue(store, kind=f"k{n}") for n in range(8)]
        first = await store.jobs.page(Filter(), limit=3)
        await store.jobs.enqueue([new_job(kind="new") for _ in range(5)])
        await store.jobs.act(
            BulkAction.DELETE, Selection(ids=(answers[5].id, answers[3].id)), limit=9
        )
        second = await store.jobs.page(Filter(), limit=10, after=first.next)
        assert [job.kind for job in first.jobs] == ["k7", "k6", "k5"]
        assert [job.kind for job in second.jobs] == ["k4", "k2", "k1", "k0"]
        assert second.next is None

    async def test_a_full_last_page_is_followed_by_nothing(self, store: Store) -> None:
        await store.jobs.enqueue([new_job() for _ in range(4)])
        first = await store.jobs.page(Filter(), limit=2)
        second = await store.jobs.page(Filter(), limit=2, after=first.next)
        assert len(second.jobs) == 2
        if second.next is not None:
            third = await store.jobs.page(Filter(), limit=2, after=second.next)
            assert (third.jobs, third.next) == ((), None)

    async def test_a_foreign_cursor_is_refused(self, store: Store) -> None:
        for cursor in ("nonsense", "", "1; drop table jobs", "-1", "é"):
            with pytest.raises(BadOption):
                await store.jobs.page(Filter(), limit=5, after=cursor)

    async def test_every_condition(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        start = clock.now()
        await enqueue(store, kind="a", tags=("red", "blue"), dedupe_key="d1")
        clock.advance(1)
        await enqueue(store, kind="b", tags=("redder",), queue="other")
        clock.advance(1)
        await enqueue(store, kind="c", tags=("blue",), dedupe_key="d2")
        clock.advance(1)
        await enqueue(store, kind="d", delay_s=900.0)
        jobs = await worker.claim(free=2)
        await worker.send_finishes(
            worker.build_finish(jobs[0], Failed("could not reach 100% of_host\\x")),
            worker.build_finish(jobs[1], Dead("refused")),
        )
        expected = {
            Filter(): "dcba",
            Filter(queue="q"): "dca",
            Filter(queue="none"): "",
            Filter(kind="b"): "b",
            Filter(statuses=(JobStatus.FAILED,)): "a",
            Filter(statuses=(JobStatus.DEAD, JobStatus.PENDING)): "cb",
            Filter(statuses=tuple(JobStatus)): "dcba",
            Filter(tag="red"): "a",
            Filter(tag="blue"): "ca",
            Filter(dedupe_key="d2"): "c",
            Filter(error="reach 100%"): "a",
            Filter(error="of_host\\"): "a",
            Filter(error="r_ach"): "",
            Filter(error="ref"): "c",
            Filter(enqueued_from=start + SECOND): "dcb",
            Filter(enqueued_until=start + SECOND): "a",
            Filter(enqueued_from=start + SECOND, enqueued_until=start + 3 * SECOND): "cb",
            Filter(queue="q", kind="a", tag="blue", statuses=(JobStatus.FAILED,)): "a",
            Filter(queue="q", kind="a", tag="blue", statuses=(JobStatus.DEAD,)): "",
        }
        for wanted, kinds in expected.items():
            page = await store.jobs.page(wanted, limit=10)
            assert "".join(job.kind for job in page.jobs) == kinds, wanted
            count = await store.metrics.count(wanted, cap=100)
            assert (count.jobs, count.more) == (len(kinds), False), wanted

    async def test_arguments_ends_and_owners(
        self, store: Store, worker: Process, clock: MovableClock
    ) -> None:
        async def job(kind: str, **payload: object) -> None:
            await enqueue(store, kind=kind, payload=json_payload.encode(payload))

        await job("a", to="Ann@example.com", order=17, customer={"id": 4, "vip": True})
        await job("b", to="bob@example.com", order=170, tags=["red", "blue"])
        await job("c", to='say "hi"\\', token="ann@secret", customer={"id": 40})
        await job("d", to="José")
        jobs = await worker.claim(free=3)
        clock.advance(1)
        ended = clock.now()
        await worker.send_finishes(worker.build_finish(jobs[0], Dead("refused")))
        clock.advance(1)
        await worker.send_finishes(worker.build_finish(jobs[1], Done(None)))
        dead_or_done = (JobStatus.DEAD, JobStatus.DONE)
        expected = {
            Filter(arguments=(("to", "ann@"),)): "a",
            Filter(arguments=(("to", "EXAMPLE"),)): "ba",
            Filter(arguments=(("to", "josÉ"),)): "d",
            Filter(arguments=(("to", 'y "hi"\\'),)): "c",
            Filter(arguments=(("order", "17"),)): "a",
            Filter(arguments=(("customer.id", "4"), ("to", "ann"))): "a",
            Filter(arguments=(("customer.vip", "true"),)): "a",
            Filter(arguments=(("tags", "blu"),)): "b",
            Filter(arguments=(("token", "ann@"),)): "",
            Filter(arguments=(("from", "ann"),)): "",
            Filter(arguments=(("to", "@"),), payload="170"): "b",
            Filter(arguments=(("to", "@"),), statuses=(JobStatus.DONE,)): "b",
            Filter(finished_from=ended): "ba",
            Filter(finished_until=ended + 1): "a",
            Filter(finished_from=ended + 1, statuses=dead_or_done): "b",
            Filter(owners=(worker.key,)): "c",
            Filter(owners=(worker.key + 1,)): "",
            Filter(owners=()): "",
        }
        for wanted, kinds in expected.items():
            page = await store.jobs.page(wanted, limit=10)
            assert "".join(job.kind for job in page.jobs) == kinds, wanted
            count = await store.metrics.count(wanted, cap=100)
            assert (count.jobs, count.more) == (len(kinds), False), wanted

    async def test_few_among_many_are_found_step_by_step(self, store: Store) -> None:
        """Each call is bounded; following the cursor ends and misses nothing."""
        await enqueue(store, kind="rare", tags=("needle",))
        for _ in range(12):
            await store.jobs.enqueue([new_job(kind="k") for _ in range(1_000)])
        wanted = Filter(tag="needle")
        found: list[str] = []
        cursor = None
        for _ in range(100):
            page = await store.jobs.page(wanted, limit=10, after=cursor)
            found.extend(job.kind for job in page.jobs)
            assert page.stopped == (page.next is not None)
            cursor = page.next
            if cursor is None:
                break
        assert (found, cursor) == (["rare"], None)
        count = await store.metrics.count(wanted, cap=10_000)
        assert count.more or count.jobs == 1
        acted, cursor = 0, None
        for _ in range(100):
            done = await store.jobs.act(
                BulkAction.CANCEL, Selection(filter=wanted), reason="", limit=10, after=cursor
            )
            acted, cursor = acted + done.changed, done.next
            if cursor is None:
                break
        assert (acted, cursor) == (1, None)
        by_kind = await store.metrics.count(Filter(kind="k"), cap=20_000)
        assert (by_kind.jobs, by_kind.more) == (12_000, False)

    async def test_an_error_is_found_by_what_is_shown_of_it(
        self, store: Store, worker: Process
    ) -> None:
        await enqueue(store, kind="leak")
        await enqueue(store, kind="plain")
        leak, plain = await worker.claim(free=2)
        await worker.send_finishes(
            worker.build_finish(
                leak, Dead("no login at redis://u:sesame@cache, password=hush-hush!")
            ),
            worker.build_finish(plain, Dead("sesame seeds are out")),
        )
        expected = {
            "sesame": "plain",
            "sesam": "plain",
            "hush": "",
            "password=": "leak",
            "u:***@cache, pass": "leak",
            "***": "leak",
            "no login": "leak",
        }
        for error, kind in expected.items():
            for wanted in (Filter(error=error), Filter(error=error, statuses=(JobStatus.DEAD,))):
                page = await store.jobs.page(wanted, limit=10)
                assert "".join(job.kind for job in page.jobs) == kind, error
                assert (await store.metrics.count(wanted, cap=10)).jobs == bool(kind), error
        acted = await store.jobs.act(
            BulkAction.RETRY, Selection(filter=Filter(error="hush-h")), limit=10
        )
        assert acted.changed == 0

    async def test_a_payload_is_found_by_what_is_shown_of_it(self, store: Store) -> None:
        long = b'{"note":"' + b"x" * 5_000 + b' The End"}'
        payloads = {
            "a": b'{"to":"Ada Lovelace","password":"sesame"}',
            "b": '{"to":"Zoë Ångström","at":"redis://u:sesame@h"}'.encode(),
            "c": long,
        }
        for kind, payload in payloads.items():
            await enqueue(store, kind=kind, payload=payload)
        expected = {
            "lovelace": "a", "ADA": "a", "sesame": "", "ses": "", '"to"': "ba", "zoë": "b",
            "ÅNGSTRÖM": "b", "ë å": "b", "the end": "c", "none": "",
        }  # fmt: skip
        for text, kinds in expected.items():
            page = await store.jobs.page(Filter(payload=text), limit=10)
            assert "".join(job.kind for job in page.jobs) == kinds, text
            assert (page.rows_read, page.next) == (3, None)
            assert (await store.metrics.count(Filter(payload=text), cap=10)).jobs == len(kinds)

    async def test_every_state_in_every_order(self, store: Store, worker: Process) -> None:
        """A backend may read states from different indexes; the page has one order."""
        for n in range(24):
            await enqueue(store, kind=f"k{n:02}", queue=f"q{n % 2}" if n % 3 else "q",
                          delay_s=600.0 if n % 4 == 3 else 0.0)  # fmt: skip
        for position, job in enumerate(await worker.claim(free=5)):
            outcomes = (Done(), Dead("x"), Failed("y"))
            if position < len(outcomes):
                await worker.finish(job, outcomes[position])
        everything = (await store.jobs.page(Filter(), limit=100)).jobs
        assert len(everything) == 24
        states = tuple(dict.fromkeys(job.status for job in everything))
        assert len(states) >= 5
        for first in states:
            for second in states:
                wanted = Filter(statuses=(first, second))
                expected = [job.kind for job in everything if job.status in (first, second)]
                found: list[str] = []
                cursor = None
                while True:
                    page = await store.jobs.page(wanted, limit=3, after=cursor)
                    found.extend(job.kind for job in page.jobs)
                    cursor = page.next
                    if cursor is None:
                        break
                assert found == expected, wanted
