"""Checks the running API against its OpenAPI document with generated requests."""

import os
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.config import SchemathesisConfig

from forge_jobs.web import Role
from forge_jobs.web.api.openapi import openapi_document
from tests.web.harness import serve_on_socket, token, web_harness

# By default the boundary values of every schema and a few derandomized requests. SCHEMA_WHOLE=1
# sends many more random ones; SCHEMA_STORE=sqlite or postgres uses another store.
_WHOLE = os.environ.get("SCHEMA_WHOLE") == "1"
_STORE = os.environ.get("SCHEMA_STORE", "memory")

# A schema cannot describe cron expressions, cursors, or which states an action applies to, and a
# generated name is rarely that of a queue: such requests are valid and still refused.
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
    with web_harness(store_url) as harness, serve_on_socket(harness.app) as url:
        harness.forge.queue("default", slots=2)
        harness.forge.enqueue("send", {"to": "ada"}, queue="default")
        yield url


schema = schemathesis.openapi.from_dict(
    openapi_document("", read_only=False), config=SchemathesisConfig.from_dict(_CONFIG)
)


@schema.auth()
class Admin:
    """The bearer token as an auth provider, so that schemathesis also tests without it."""

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
def test_every_response_fits_the_openapi_document(case: schemathesis.Case, address: str) -> None:
    case.call_and_validate(base_url=address)
