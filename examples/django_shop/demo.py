"""Orders, their mails and payments. Run: python examples/django_shop/demo.py"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from shop.models import Order, place_order  # noqa: E402
from shop.tasks import pay  # noqa: E402

from forge_jobs.django import forge_of, object_tag  # noqa: E402

if __name__ == "__main__":
    call_command("migrate", run_syncdb=True, verbosity=0)
    forge = forge_of()
    ada = place_order("ada", "pen", cents=500)
    try:
        place_order("grace", "yacht", cents=90_000_000)
    except ValueError as error:
        print("refused:", error)
    payment = pay.using(tags=[object_tag(ada)]).enqueue(ada.pk)
    forge.drain().run()  # `manage.py forge worker` does this in another process
    payment.refresh()
    print("payment:", payment.status, payment.return_value)
    print("steps:", [step.name for step in payment.forge.steps()])
    print("orders:", [str(order) for order in Order.objects.all()])
    jobs = forge.jobs(tag=object_tag(ada))
    print("jobs of the order:", sorted(f"{job.kind} {job.status}" for job in jobs))
