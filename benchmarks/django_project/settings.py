"""One Django project for every backend: BENCH_BACKEND chooses, BENCH_DATABASE is in Postgres."""

import json
import os

SECRET_KEY = "only for measuring"
USE_TZ = True
DEBUG = False
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASE = json.loads(os.environ["BENCH_DATABASE"])
DATABASES = {
    "default": {"ENGINE": "django.db.backends.postgresql", "CONN_MAX_AGE": None, **DATABASE}
}
BACKEND = os.environ["BENCH_BACKEND"]
BACKENDS = {
    "forge": "forge_jobs.django.ForgeBackend",
    "django-tasks-db": "django_tasks_db.DatabaseBackend",
    "django-ox": "django_ox.backend.OxBackend",
    "djhuey": "huey.contrib.djhuey.tasks_backend.HueyBackend",
}
APPLICATIONS = {
    "forge": "forge_jobs.django",
    "django-tasks-db": "django_tasks_db",
    "django-ox": "django_ox",
    "djhuey": "huey.contrib.djhuey",
}
INSTALLED_APPS = ["django.contrib.contenttypes", APPLICATIONS[BACKEND], "loads"]
TASKS = {"default": {"BACKEND": BACKENDS[BACKEND]}}
if BACKEND == "djhuey":
    HUEY = {
        "huey_class": "huey.PostgresHuey",
        "name": "bench",
        "connection": {
            "dsn": f"host={DATABASE['HOST']} user={DATABASE['USER']} dbname={DATABASE['NAME']}"
        },
        "immediate": False,
        "consumer": {"workers": 16, "worker_type": "thread"},
    }
QUIET = {"level": "ERROR"}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "loggers": {"django": QUIET, "django_tasks_db": QUIET, "django_ox": QUIET, "huey": QUIET},
}
