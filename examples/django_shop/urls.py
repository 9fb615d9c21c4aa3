"""The admin, and Mission Control for users of staff."""

from django.contrib import admin
from django.urls import path

from forge_jobs.django import mission_control_urls

urlpatterns = [
    path("admin/", admin.site.urls),
    path("forge/", mission_control_urls()),
]
