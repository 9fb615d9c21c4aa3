"""The OpenAPI document against the running API: made-up requests of every kind, all checks."""

import os
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig

from forge_jobs.web import Role
from forge_jobs.web.api.openapi import described
from tests.web.panel import on_a_socket, panel, token

# The edges of every schema are tried one by one, and a few requests by chance, the same each time.
# SCHEMA_WHOLE=1 tries many more, never the same ones; SCHEMA_STORE=sqlite or postgres asks another
# store.
_WHOLE = os.environ.get("SCHEMA_WHOLE") == "1"
_STORE = os.environ.get("SCHEMA_STORE", "memory")

# A schema cannot say what makes a cron expression, a cursor or a state that an action fits, and a
# made-up name is rarely that of a queue: such requests are refused although they fit the schema.
_CONFIG = {
    "checks": {
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "400", "403", "404", "409"],
        }
    },
}


@pytest.fixture(scope="module")
def store_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    match _STORE:
        case "sqlite":
            return f"sqlite:///{tmp_path_factory.mktemp('schema')}/jobs.db"
        case "postgres":
            schemas = request.getfixturevalue("schemas")
            return schemas.url(schemas.take())
        case _:
            return "memory://"


@pytest.fixture(scope="module")
def address(store_url: str) -> Iterator[str]:
    with panel(store_url) as made, on_a_socket(made.app) as url:
        made.forge.queue("default", slots=2)
        made.forge.enqueue("send", {"to": "ada"}, queue="default")
        yield url


schema = schemathesis.openapi.from_dict(
    described("", read_only=False), config=SchemathesisConfig.from_dict(_CONFIG)
)


@schema.auth()
class Admin:
    """A bearer token that schemathesis knows of, so that it can also leave it out."""

    def get(self, case: schemathesis.Case, context: schemathesis.AuthContext) -> str:
        return token(Role.ADMIN)

    def set(self, case: schemathesis.Case, data: str, context: schemathesis.AuthContext) -> None:
        case.headers["Authorization"] = f"Bearer {data}"


@schema.parametrize()
@settings(
    max_examples=100 if _WHOLE else 15,
    deadline=None,
    database=None,
    derandomize=not _WHOLE,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_fits_the_document(case: schemathesis.Case, address: str) -> None:
    case.call_and_validate(base_url=address)
