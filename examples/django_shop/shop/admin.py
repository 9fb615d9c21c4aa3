"""Orders in the admin, each with a link to its jobs."""

from django.contrib import admin
from django.utils.html import format_html

from forge_jobs.django import object_jobs_url
from shop.models import Order


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("customer", "item", "state", "jobs")

    @admin.display(description="jobs")
    def jobs(self, order):
        return format_html('<a href="{}">jobs</a>', object_jobs_url(order))
