"""Tags that tie jobs to objects of the database: ``using(tags=[object_tag(order)])``."""

from typing import Any


def object_tag(instance: Any) -> str:
    """The tag of a model instance, for example ``shop.order:42``."""
    return f"{instance._meta.label_lower}:{instance.pk}"
