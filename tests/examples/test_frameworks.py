"""The examples of web frameworks, each started by its own command and used."""

from pathlib import Path

import httpx
import pytest

from tests.examples.commands import EXAMPLES, named_command, run
from tests.examples.test_servers import free_port, poll, started

pytestmark = pytest.mark.processes


def test_the_readme_has_the_commands_of_the_headers() -> None:
    readme = (EXAMPLES / "frameworks" / "README.md").read_text()
    for name in ("fastapi_app", "litestar_app", "flask_app"):
        assert f"`{named_command(f'frameworks/{name}.py')}`" in readme


def test_fastapi_packs_orders_and_forgets_refused_ones(tmp_path: Path) -> None:
    port = free_port()
    with (
        started(f"{named_command('frameworks/fastapi_app.py')} --port {port}", tmp_path),
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        poll(client, "/orders/1", "no such order")
        assert client.post("/orders/yacht").status_code == 402
        placed = client.post("/orders/book")
        assert placed.status_code == 202
        assert client.get(f"/results/{placed.json()['job']}").json() == "book is packed"
        assert client.get(f"/orders/{placed.json()['order']}").json() == {
            "item": "book",
            "packed": True,
        }
        assert client.get("/jobs/").headers["location"] == "/login"
        inside = client.get("/login", params={"team": "ops"}, follow_redirects=True)
        assert inside.status_code == 200
        listed = client.get("/jobs/api/jobs").json()["rows"]
        # None of the yacht's: its transaction was rolled back.
        assert [row["id"] for row in listed] == [placed.json()["job"]]


def test_litestar_answers_with_the_result(tmp_path: Path) -> None:
    port = free_port()
    with (
        started(f"{named_command('frameworks/litestar_app.py')} --port {port}", tmp_path),
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        poll(client, "/ops/jobs/healthz", "ok")
        assert client.post("/greet/ada").text == "Hello, ada!"
        assert client.get("/ops/jobs/jobs").status_code == 200


def test_flask_enqueues_and_its_worker_runs(tmp_path: Path) -> None:
    port, command = free_port(), named_command("frameworks/flask_app.py")
    worker = tmp_path / "worker"
    worker.mkdir()
    url = f"sqlite:///{tmp_path}/forge.db"
    with (
        started(f"{command} --port {port}", tmp_path, FORGE_URL=url),
        started(command.replace(" run", " forge worker"), worker, FORGE_URL=url),
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        poll(client, "/ada", "Method Not Allowed")
        job = client.post("/ada").json()["job"]
        assert '"Hello, ada!"' in poll(client, f"/jobs/{job}", '"done"')


def test_sqlalchemy_rolls_jobs_back(tmp_path: Path) -> None:
    assert run("transaction_sqlalchemy.py", tmp_path).lines == [
        "receipt for a book",
        "receipt for a lamp",
        "orders: a book, a lamp",
    ]
