"""The test classes for projects: TestCase, TransactionTestCase, captureOnCommitCallbacks."""

from django.db import transaction

from forge_jobs.django.testing import ForgeTestCase, ForgeTransactionTestCase
from shop import tasks
from shop.models import Order


class InTestCase(ForgeTestCase):
    def test_jobs_see_what_the_test_has_not_committed(self):
        order = Order.objects.create(number=1)
        result, other = tasks.note.enqueue(order.pk, "ok"), tasks.anote.enqueue(order.pk, "ok")
        self.assertEqual(self.drain().done, 2)
        result.refresh()
        other.refresh()
        self.assertEqual((result.return_value, other.return_value), ("ok", "ok"))

    def test_rollbacks_and_savepoints_count(self):
        with transaction.atomic():
            tasks.write_order.enqueue(1)
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                tasks.write_order.enqueue(2)
                _ = 1 / 0
            self.assertEqual(self.enqueued(), [])
        self.assertEqual([one.args for one in self.enqueued(tasks.write_order)], [[1]])
        self.drain()
        self.assertEqual([order.number for order in Order.objects.all()], [1])

    def test_captured_callbacks_store_the_job(self):
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            tasks.add.enqueue(1, 2)
        self.assertEqual(self.drain().done, 1)
        self.assertEqual(self.drain().ran, 0)

    async def test_async_tests_drain_as_well(self):
        order = await Order.objects.acreate(number=1)
        first = await tasks.anote.aenqueue(order.pk, "async")
        second = await tasks.step.aenqueue(order.pk)
        self.assertEqual(len(await self.aenqueued()), 2)
        self.assertEqual((await self.adrain()).done, 2)
        await first.arefresh()
        await second.arefresh()
        self.assertEqual((first.return_value, second.return_value), ("async", "order 1"))


class InTransactionTestCase(ForgeTransactionTestCase):
    def test_commits_are_real(self):
        with transaction.atomic():
            tasks.write_order.enqueue(7)
        self.drain()
        self.assertEqual(Order.objects.get().number, 7)
