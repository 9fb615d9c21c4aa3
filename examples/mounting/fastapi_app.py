"""Mission Control inside FastAPI. Run: uvicorn --app-dir examples/mounting fastapi_app:app"""

from fastapi import FastAPI
from jobs import forge, greet, who

from forge_jobs.web import mission_control

app = FastAPI()
app.mount("/ops/jobs", mission_control(forge, auth=who))


@app.post("/greet/{name}")
async def order(name: str) -> dict[str, str]:
    return {"job": (await greet.aenqueue(name)).id}
