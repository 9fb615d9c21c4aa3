"""Mission Control beside Django (ASGI). Run: uvicorn --app-dir examples/mounting django_app:app

Django routes requests, not ASGI applications, so `app` dispatches between the two.
"""

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="only for this example", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, USE_TZ=True
)
django.setup()

from django.core.asgi import get_asgi_application  # noqa: E402
from django.http import HttpRequest, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from jobs import forge, greet, who  # noqa: E402

from forge_jobs.web import mission_control  # noqa: E402

PREFIX = "/ops/jobs"


async def order(request: HttpRequest, name: str) -> JsonResponse:
    return JsonResponse({"job": (await greet.aenqueue(name)).id})


urlpatterns = [path("greet/<str:name>", order)]
site = get_asgi_application()
panel = mission_control(forge, auth=who, root=PREFIX)


async def app(scope, receive, send) -> None:
    is_panel = scope["type"] == "http" and f"{scope['path']}/".startswith(f"{PREFIX}/")
    await (panel if is_panel else site)(scope, receive, send)
