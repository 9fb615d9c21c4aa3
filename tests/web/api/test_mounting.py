"""The mounting examples, each started in its own process as its README says."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "mounting"
KEY = {"x-team-key": "open sesame"}
PATIENCE_S = 60


@contextmanager
def started(name: str, folder: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as place:
        port = place.getsockname()[1]
    environment = {**os.environ, "FORGE_URL": f"sqlite:///{folder}/forge.db"}
    command = [sys.executable, "-m", "uvicorn", f"{name}:app", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--log-level", "warning"], cwd=EXAMPLES, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and process.poll() is None:
            try:
                httpx.get(f"{address}/ops/jobs/healthz")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in said, said


@pytest.mark.processes
@pytest.mark.parametrize("name", ["fastapi_app", "starlette_app", "litestar_app", "django_app"])
def test_an_example_serves_its_own_routes_and_mission_control(name: str, tmp_path: Path) -> None:
    with (
        started(name, tmp_path) as address,
        httpx.Client(base_url=address, headers=KEY, follow_redirects=True) as client,
    ):
        job = client.post("/greet/ada").json()["job"]
        below = "/ops/jobs"
        listed = client.get(f"{below}/api/jobs").json()
        assert [row["id"] for row in listed["rows"]] == [job]
        assert client.get(f"{below}/api/jobs", headers={"x-team-key": "no"}).status_code == 401
        page = client.get(f"{below}/jobs")
        assert page.status_code == 200
        assert f'href="{below}/jobs/{job}' in page.text
        assert re.search(rf'"{below}/static/forge\.[0-9a-f]{{16}}\.css"', page.text)
        assert client.get(f"{below}/static/forge.css").status_code == 200
        assert client.get(f"{below}/jobs/{job}").status_code == 200
        assert client.get(f"{below}/").status_code == 200
        document = client.get(f"{below}/api/openapi.json").json()
        assert document["servers"] == [{"url": below}]
        paused = client.post(f"{below}/api/queue/mail/paused", json={"paused": True})
        assert paused.status_code == 204
        assert client.post(f"{below}/api/queue/cleanup").status_code == 403
