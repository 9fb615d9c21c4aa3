"""Settings of the shop. The jobs are in its own database."""

import os
from importlib.util import find_spec

SECRET_KEY = "only for this example"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
DEBUG = False
USE_TZ = True
ROOT_URLCONF = "urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    # Part of Django from 6.0 on.
    *([] if find_spec("django.tasks") else ["django_tasks"]),
    "forge_jobs.django",
    "shop",
]
TASKS = {
    "default": {
        "BACKEND": "forge_jobs.django.ForgeBackend",
        "QUEUES": [],  # any name
        "OPTIONS": {"database": "default", "queues": {"default": 10, "mail": 5}},
    }
}
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DB", "shop.db"),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
