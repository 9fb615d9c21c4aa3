"""Tests of the shop. Jobs run in the transaction of the test, which is rolled back at its end."""

from forge_jobs.django.testing import ForgeTestCase
from shop.models import Order, place_order
from shop.tasks import pay, send_mail


class Orders(ForgeTestCase):
    def test_an_order_sends_a_mail(self):
        order = place_order("ada", "pen", cents=500)
        (mail,) = self.enqueued(send_mail)
        assert mail.args == [order.pk]
        report = self.drain()
        assert (report.failed, report.done) == (1, 1)  # the first attempt fails

    def test_a_refused_order_sends_none(self):
        with self.assertRaisesMessage(ValueError, "no credit for yacht"):
            place_order("grace", "yacht", cents=90_000_000)
        assert self.enqueued() == []

    def test_a_payment_marks_the_order(self):
        order = Order.objects.create(customer="ada", item="pen", cents=500)
        result = pay.enqueue(order.pk)
        self.drain()
        result.refresh()
        order.refresh_from_db()
        assert (result.return_value, order.state) == ("receipt over 5.00", "paid")
