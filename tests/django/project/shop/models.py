"""Orders, which tasks read and change."""

from django.db import models


class Order(models.Model):
    number = models.IntegerField()
    note = models.CharField(max_length=200, default="")

    def __str__(self) -> str:
        return f"order {self.number}"
