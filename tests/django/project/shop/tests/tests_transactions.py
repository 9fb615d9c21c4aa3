"""Jobs in the transactions of the project: they exist if and only if it commits."""

import threading
import time

from django.db import connection, transaction
from django.test import TransactionTestCase

from forge_jobs.django import forge_of
from shop import tasks
from shop.models import Order


def count():
    return forge_of().jobs().count()


class JoinedTransactions(TransactionTestCase):
    def setUp(self):
        forge_of().jobs().delete()

    def test_a_commit_stores_order_and_job(self):
        with transaction.atomic():
            order = Order.objects.create(number=1)
            result = tasks.note.enqueue(order.pk, "paid")
            self.assertEqual(count(), 0)
        self.assertEqual(count(), 1)
        forge_of().drain().run()
        result.refresh()
        self.assertEqual(result.return_value, "paid")

    def test_a_rollback_leaves_no_job(self):
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            Order.objects.create(number=1)
            tasks.add.enqueue(1, 2)
            _ = 1 / 0
        self.assertEqual((count(), Order.objects.count()), (0, 0))

    def test_an_inner_savepoint_takes_only_its_own_job_along(self):
        with transaction.atomic():
            tasks.add.enqueue(1, 1)
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                tasks.add.enqueue(2, 2)
                _ = 1 / 0
            with transaction.atomic():
                tasks.add.enqueue(3, 3)
        args = sorted(job.payload["a"] for job in forge_of().jobs())
        self.assertEqual(args, [1, 3])

    def test_ids_of_rolled_back_savepoints_do_not_come_again(self):
        seen = []
        with transaction.atomic():
            for _ in range(30):
                with self.assertRaises(ZeroDivisionError), transaction.atomic():
                    seen.append(tasks.add.enqueue(1, 1).id)
                    _ = 1 / 0
            seen.append(tasks.add.enqueue(2, 2).id)
        seen.append(tasks.add.enqueue(3, 3).id)
        self.assertEqual(len(set(seen)), 32)

    def test_a_commit_starts_the_job(self):
        done = threading.Event()

        async def run():
            async with forge_of().worker():
                await asyncio_wait(done)

        thread = threading.Thread(target=lambda: __import__("asyncio").run(run()))
        thread.start()
        try:
            deadline = time.monotonic() + 20
            with transaction.atomic():
                result = tasks.add.enqueue(2, 3)
            while not result.is_finished and time.monotonic() < deadline:
                time.sleep(0.01)
                result.refresh()
        finally:
            done.set()
            thread.join()
        self.assertEqual(result.return_value, 5)

    def test_errors_leave_the_transaction_usable(self):
        with transaction.atomic():
            with self.assertRaises(TypeError):
                tasks.add.enqueue(object(), 1)
            Order.objects.create(number=5)
            tasks.add.enqueue(1, 1)
        self.assertEqual((count(), Order.objects.count()), (1, 1))

    def test_joining_works_on_a_new_connection(self):
        connection.close()
        with transaction.atomic():
            tasks.add.enqueue(1, 1)
        self.assertEqual(count(), 1)


async def asyncio_wait(event):
    import asyncio

    while not event.is_set():
        await asyncio.sleep(0.02)
