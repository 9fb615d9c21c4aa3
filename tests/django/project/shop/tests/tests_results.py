"""Options, results and errors of tasks, as Django shows them."""

import copy
from datetime import datetime, timedelta

from django.test import TransactionTestCase
from django.utils import timezone

from forge_jobs.django import forge_of
from forge_jobs.django.django_api import (
    InvalidTask,
    InvalidTaskBackend,
    ResultDoesNotExist,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from shop import tasks


class Results(TransactionTestCase):
    def setUp(self):
        self.forge = forge_of()
        self.forge.jobs().delete()

    def test_a_result_shows_the_call_its_value_and_the_job(self):
        result = tasks.add.enqueue(1, 2, extra=3)
        self.assertEqual(result.status, "READY")
        self.forge.drain().run()
        again = tasks.add.get_result(result.id)
        self.assertEqual((again.args, again.kwargs), ([1, 2], {"extra": 3}))
        self.assertEqual((again.status, again.return_value, again.attempts), ("SUCCESSFUL", 6, 1))
        self.assertTrue(again.enqueued_at <= again.started_at <= again.finished_at)
        self.assertEqual(again.forge.kind, "shop.tasks.add")

    def test_a_failure_shows_class_and_traceback_of_each_attempt(self):
        result = tasks.fail.enqueue("gone")
        self.forge.drain().run()
        result.refresh()
        self.assertEqual((result.status, result.attempts), ("FAILED", 2))
        (first, second) = result.errors
        self.assertEqual(first.exception_class_path, "shop.models.Order.DoesNotExist")
        self.assertIn("raise Order.DoesNotExist(text)", second.traceback)
        self.assertIn('File "', second.traceback.splitlines()[1])
        self.assertIn("shop", second.traceback.splitlines()[1])
        with self.assertRaises(ValueError):
            _ = result.return_value

    def test_signals_tell_of_every_stage(self):
        seen = []

        def note(name):
            def receive(sender, task_result, **kwargs):
                seen.append((name, task_result.status, task_result.id))

            return receive

        receivers = [
            (signal, note(name))
            for name, signal in (
                ("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)
            )
        ]  # fmt: skip
        for signal, receiver in receivers:
            signal.connect(receiver)
        try:
            good, bad = tasks.add.enqueue(1, 2), tasks.fail.enqueue("x")
            self.forge.drain().run()
        finally:
            for signal, receiver in receivers:
                signal.disconnect(receiver)
        of_good = [one[:2] for one in seen if one[2] == good.id]
        self.assertEqual(
            of_good,
            [("enqueued", "READY"), ("started", "RUNNING"), ("finished", "SUCCESSFUL")],
        )
        of_bad = [one[0] for one in seen if one[2] == bad.id]
        self.assertEqual(of_bad, ["enqueued", "started", "started", "finished"])

    def test_async_tasks_use_the_database(self):
        from shop.models import Order

        order = Order.objects.create(number=1)
        result = tasks.anote.enqueue(order.pk, "async")
        self.forge.drain().run()
        result.refresh()
        self.assertEqual(result.return_value, "async")

    async def test_coroutines_enqueue_and_read(self):
        result = await tasks.aadd.aenqueue(20, 22)
        await self.forge.adrain()
        self.assertEqual((await tasks.aadd.aget_result(result.id)).return_value, 42)

    def test_the_context_is_that_of_both(self):
        result, paid = tasks.told.enqueue(), tasks.charged.enqueue(4)
        self.forge.drain().run()
        result.refresh()
        paid.refresh()
        self.assertEqual(result.return_value, [1, "shop.tasks.told"])
        self.assertEqual(result.forge.refresh().progress_note, "half")
        self.assertEqual(paid.return_value, 8)
        self.assertEqual([step.name for step in paid.forge.steps()], ["charge"])

    def test_options_of_tasks_and_of_single_jobs(self):
        result = tasks.send.using(dedupe_key="welcome", delay="1h").enqueue("a.example")
        again = tasks.send.using(dedupe_key="welcome").enqueue("b.example")
        self.assertEqual(again.id, result.id)
        record = result.forge.refresh().record
        self.assertEqual((record.queue, record.priority, record.max_attempts), ("mail", -10, 3))
        self.assertEqual((record.timeout_s, record.tags), (30.0, ("mail",)))
        self.assertEqual(str(record.status), "scheduled")
        self.assertIn("a.example", record.limit_key)

    def test_larger_priorities_run_first_and_later_tasks_wait(self):
        later = timezone.now() + timedelta(hours=1)
        tasks.add.using(run_after=later).enqueue(0, 0)
        for priority in (-100, 100, 0):
            tasks.add.using(priority=priority).enqueue(priority, 0)
        self.forge.drain(limit=1).run()
        done = [job.payload["a"] for job in self.forge.jobs(status="done")]
        self.assertEqual(done, [100])
        self.forge.drain().run()
        self.assertEqual(self.forge.jobs(status="scheduled").count(), 1)

    def test_tasks_can_be_copied_where_django_can(self):
        if hasattr(type(tasks.send), "_reconstruct"):
            self.assertEqual(copy.copy(tasks.send), tasks.send)
            self.assertEqual(copy.copy(tasks.send).enqueue("a").forge.refresh().max_attempts, 3)

    def test_bad_tasks_are_refused_as_by_django(self):
        def inner():
            pass

        with self.assertRaises(InvalidTask):
            tasks.task(inner)
        with self.assertRaises(InvalidTask):
            tasks.add.using(run_after=datetime(2030, 1, 1))
        with self.assertRaises(InvalidTask):
            tasks.add.using(priority=101)
        with self.assertRaisesRegex(InvalidTask, "max_attempts=0"):
            tasks.add.using(max_attempts=0)
        with self.assertRaises(InvalidTaskBackend):
            tasks.add.using(backend="nowhere")
        with self.assertRaises(TypeError):
            tasks.add.using(dedupe="x")

    def test_bad_arguments_are_refused_as_by_django(self):
        with self.assertRaises(TypeError):
            tasks.add.enqueue(object(), 1)
        with self.assertRaises(TypeError):
            tasks.add.enqueue(1)
        with self.assertRaises(ValueError):
            tasks.add.enqueue(float("nan"), 1)
        with self.assertRaises(ResultDoesNotExist):
            task_backends["default"].get_result("01ARZ3NDEKTSV4RRFFQ69G5FAV")
        with self.assertRaises(ResultDoesNotExist):
            task_backends["default"].get_result("x")
