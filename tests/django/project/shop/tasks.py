"""Tasks of the test project."""

import os
import time
from pathlib import Path

from forge_jobs.django import Retry, forge_options
from shop.models import Order

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

NOW = Retry(base="0s", jitter=0)


@task
def add(a, b, *, extra=0):
    return a + b + extra


@task
async def aadd(a, b):
    return a + b


@task
def note(pk, text):
    Order.objects.filter(pk=pk).update(note=text)
    return Order.objects.get(pk=pk).note


@task
async def anote(pk, text):
    await Order.objects.filter(pk=pk).aupdate(note=text)
    return (await Order.objects.aget(pk=pk)).note


@task
@forge_options(max_attempts=2, retry=NOW)
def fail(text):
    raise Order.DoesNotExist(text)


@task(queue_name="mail", priority=10)
@forge_options(max_attempts=3, timeout="30s", tags=["mail"], concurrency=5, per="args.host")
def send(host, subject="hi"):
    return f"{host}: {subject}"


@task(takes_context=True)
def told(context):
    context.forge.progress(0.5, "half")
    return [context.attempt, context.forge.job.kind]


@task(takes_context=True)
async def charged(context, amount):
    paid = await context.forge.step("charge", charge, amount)
    return paid


@task(takes_context=True)
def step(context, pk):
    return context.forge.step_sync("read", lambda: str(Order.objects.get(pk=pk)))


def charge(amount):
    return amount * 2


@task
@forge_options(cpu=True)
def count_orders():
    return [Order.objects.count(), os.getpid()]


@task
def write_order(number):
    Order.objects.create(number=number)


@task
def sleep_once(path):
    """Waits for its end in its first run, and tells where it runs."""
    mark = Path(path)
    if mark.exists():
        return "again"
    mark.write_text(str(os.getpid()))
    time.sleep(600)
    return "ended"


@task
@forge_options(retry=NOW)
def touch(pk):
    """Two queries, on whatever connection this thread has."""
    Order.objects.get(pk=pk)
    Order.objects.filter(pk=pk).update(note="touched")
