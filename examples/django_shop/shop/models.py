"""Orders. An order and its mail are stored together, or neither is."""

from django.db import models, transaction

from forge_jobs.django import object_tag

CREDIT_CENTS = 1_000_000


class Order(models.Model):
    customer = models.CharField(max_length=100)
    item = models.CharField(max_length=100)
    cents = models.IntegerField()
    state = models.CharField(max_length=20, default="placed")

    def __str__(self) -> str:
        return f"{self.item} for {self.customer}: {self.state}"


def place_order(customer: str, item: str, *, cents: int) -> Order:
    """Store an order and the job of its mail in one transaction."""
    from shop.tasks import send_mail

    with transaction.atomic():
        order = Order.objects.create(customer=customer, item=item, cents=cents)
        send_mail.using(tags=[object_tag(order)]).enqueue(order.pk)
        if cents > CREDIT_CENTS:
            raise ValueError(f"no credit for {item}")  # the mail is rolled back as well
    return order
