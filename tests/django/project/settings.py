"""Settings of the test project. The environment chooses the database and the driver."""

import json
import os
import sys
from importlib.util import find_spec

if os.environ.get("TEST_DRIVER") == "psycopg2":
    # Django takes psycopg 3 where it is installed.
    sys.modules["psycopg"] = None

SECRET_KEY = "only for tests"
USE_TZ = True
ROOT_URLCONF = "urls"
ALLOWED_HOSTS = ["testserver", "127.0.0.1"]
HAS_TASKS = find_spec("django.tasks") is not None
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    *([] if HAS_TASKS else ["django_tasks"]),
    "forge_jobs.django",
    # The peer, beside ours in the same project.
    *(["django_tasks_db"] if os.environ.get("TEST_PEER") else []),
    "shop",
]
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
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": json.loads(os.environ["TEST_DATABASE"])}
TASKS = {
    "default": {
        "BACKEND": "forge_jobs.django.ForgeBackend",
        "QUEUES": [],
        "OPTIONS": json.loads(os.environ.get("TEST_OPTIONS", "{}")),
    }
}
if os.environ.get("TEST_PEER"):
    TASKS["peer"] = {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": []}
# Tasks that fail on purpose would fill the output.
QUIET = {"level": "CRITICAL"}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {"django": QUIET, "django_tasks": QUIET, "forge_jobs": QUIET},
}
