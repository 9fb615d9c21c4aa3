"""The extension for Flask."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from flask import Flask, current_app, g

from forge_jobs import BadOption, Forge, JobFailed
from forge_jobs.integrations.flask import FlaskForge

SHOP = """
from flask import Flask, current_app
from forge_jobs import Forge
from forge_jobs.integrations.flask import FlaskForge

jobs = FlaskForge(Forge("sqlite:///shop.db"))

@jobs.forge.task(queue="mail")
def greet(name):
    return f"{current_app.config['GREETING']}, {name}"

def create_app(greeting="Hello"):
    app = Flask(__name__)
    app.config["GREETING"] = greeting
    jobs.init_app(app)
    return app
"""


def test_every_job_has_a_context_of_its_own(any_url: str) -> None:
    forge, log = Forge(any_url), list[str]()
    app = Flask("shop")
    app.config["GREETING"] = "Hello"
    assert FlaskForge(forge, app).forge is forge

    @app.teardown_appcontext
    def end(error: BaseException | None) -> None:
        log.append(f"{g.name} ended: {type(error).__name__}")

    @forge.task(max_attempts=1)
    def greet(name: str) -> str:
        assert "name" not in g
        g.name = name
        if name == "Linus":
            raise ValueError("no")
        return f"{current_app.config['GREETING']}, {name}"

    @forge.task
    async def awaited(name: str) -> str:
        assert "name" not in g
        g.name = name
        return f"{current_app.config['GREETING']}, {name}"

    jobs = [greet.enqueue("Ada"), awaited.enqueue("Grace"), greet.enqueue("Linus")]
    forge.drain().run()
    assert [job.result() for job in jobs[:2]] == ["Hello, Ada", "Hello, Grace"]
    with pytest.raises(JobFailed):
        jobs[2].result()
    assert sorted(log) == [
        "Ada ended: NoneType",
        "Grace ended: NoneType",
        "Linus ended: ValueError",
    ]
    forge.close()


def test_a_view_enqueues_through_the_application() -> None:
    app = Flask("shop")
    FlaskForge(Forge("memory://"), app)
    forge: Forge = app.extensions["forge"]

    @forge.task
    def greet(name: str) -> None: ...

    @app.post("/greet/<name>")
    def view(name: str) -> str:
        return current_app.extensions["forge"].enqueue("greet", {"name": name}).id

    answer = app.test_client().post("/greet/Ada").text
    assert forge.job(answer).refresh().status == "pending"


def test_a_factory_that_is_called_again_replaces_the_application() -> None:
    extension = FlaskForge(Forge("memory://"))

    @extension.forge.task
    def name() -> str:
        return current_app.name

    for wanted in ("first", "second"):
        extension.init_app(Flask(wanted))
        job = name.enqueue()
        extension.forge.drain().run()
        assert job.result() == wanted


def test_what_is_wrong_is_said() -> None:
    app = Flask("shop")
    with pytest.raises(BadOption, match="takes a Forge, not Flask"):
        FlaskForge(app)  # pyright: ignore[reportArgumentType]
    FlaskForge(Forge("memory://"), app)
    with pytest.raises(BadOption, match="has another Forge already"):
        FlaskForge(Forge("memory://"), app)


def flask(folder: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "flask", "--app", "shop:create_app('Good day')", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.processes
def test_flask_forge_worker_calls_the_factory(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with Forge(f"sqlite:///{tmp_path}/shop.db") as forge:
        job = forge.enqueue("greet", {"name": "Ada"}, queue="mail", check=False)
        worker = flask(tmp_path, "forge", "worker", "--queues", "mail:2", "--log-jobs")
        try:
            assert job.result(timeout=60) == "Good day, Ada"
        finally:
            worker.send_signal(signal.SIGTERM)
            _, errors = worker.communicate(timeout=60)
    assert worker.returncode == 0, errors


def test_flask_forge_is_the_forge_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_URL", "sqlite:///another.db")
    app = Flask("shop")
    forge = FlaskForge(Forge(f"sqlite:///{tmp_path}/shop.db"), app).forge
    job = forge.enqueue("greet", {"name": "Ada"})
    call = app.test_cli_runner().invoke
    listed = call(args=["forge", "jobs", "list", "--json"])
    assert [row["id"] for row in json.loads(listed.stdout)["jobs"]] == [job.id]
    assert "--queues" in call(args=["forge", "worker", "--help"]).stdout
    assert "no such" in call(args=["forge", "jobz"]).output.lower()
    forge.close()


@pytest.mark.processes
def test_a_worker_of_an_application_without_a_forge(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text("from flask import Flask\napp = Flask(__name__)\n")
    done = subprocess.run(
        [sys.executable, "-c", "import forge_jobs.integrations.flask_worker"],
        cwd=tmp_path,
        env={**os.environ, "FLASK_APP": "bare"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "FlaskForge(forge, app), or init_app(app) in its factory" in done.stderr
