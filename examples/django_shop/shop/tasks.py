"""What the shop does in the background."""

from forge_jobs.django import Retry, forge_options
from shop.models import Order

try:
    from django.tasks import task
except ImportError:  # Django 5.2
    from django_tasks import task


@task(queue_name="mail", takes_context=True)
@forge_options(max_attempts=4, retry=Retry(base="0s", jitter=0, only=(ConnectionError,)))
def send_mail(context, order_id):
    """Fails once, as mail servers do."""
    if context.attempt == 1:
        raise ConnectionError("the mail server does not answer")
    order = Order.objects.get(pk=order_id)
    print(f"mail to {order.customer} about {order.item}, attempt {context.attempt}")


@task(takes_context=True)
def pay(context, order_id):
    """Each step runs once in the life of the job, also if its worker is killed between them."""
    order = Order.objects.get(pk=order_id)
    receipt = context.forge.step_sync("charge", charge, order.cents)
    Order.objects.filter(pk=order_id).update(state="paid")
    return receipt


def charge(cents):
    return f"receipt over {cents / 100:.2f}"
