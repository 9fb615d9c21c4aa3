"""Flask with an application factory; jobs run in a worker beside it, in the application's context.
Run: flask --app examples/frameworks/flask_app.py run
Then: flask --app examples/frameworks/flask_app.py forge worker, and curl -X POST localhost:5000/ada
"""

from flask import Flask, current_app

from forge_jobs import Forge
from forge_jobs.integrations.flask import FlaskForge

forge = Forge()  # the address in FORGE_URL, else the file forge.db
jobs = FlaskForge(forge)


@forge.task(queue="mail")
def greet(name: str) -> str:
    return f"{current_app.config['GREETING']}, {name}!"


def create_app() -> Flask:
    app = Flask(__name__)
    app.config["GREETING"] = "Hello"
    jobs.init_app(app)

    @app.post("/<name>")
    def post_greet(name: str) -> dict[str, str]:
        return {"job": greet.enqueue(name).id}

    @app.get("/jobs/<job>")
    def show(job: str) -> dict[str, str | None]:
        found = forge.job(job).refresh()
        return {
            "status": found.status,
            "result": found.result() if found.status == "done" else None,
        }

    return app
