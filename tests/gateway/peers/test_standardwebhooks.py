"""The published verifier of Standard Webhooks accepts what the http handler sends."""

import base64

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from tests.gateway.backend import backend
from tests.gateway.conftest import Bots, post, update
from tests.gateway.fake_api import until

OLD = "whsec_" + base64.b64encode(b"o" * 24).decode()
NEW = "whsec_" + base64.b64encode(b"n" * 32).decode()
YAML = """
bots:
  back:
    handler: http
    async: true
    requireAuth: false
    http: {{url: "{url}", network: private, signingSecretEnv: BACK_SIGNING}}
"""


async def test_it_verifies_our_signatures(bots: Bots) -> None:
    async with backend() as service:
        service.say(200, b'{"text": "fine"}')
        gateway = bots.gateway(YAML.format(url=service.url), BACK_SIGNING=f"{OLD} {NEW}")
        async with gateway.running():
            await post(gateway, "back", update(1, "größer & mehr"))
            await until(lambda: bots.api.texts() == ["fine"])
    ((headers, body),) = service.got
    for secret in (OLD, NEW):
        read = Webhook(secret).verify(body, headers)
        assert read["message"]["text"] == "größer & mehr"
    stranger = Webhook("whsec_" + base64.b64encode(b"x" * 24).decode())
    for changed in (body + b" ", body.replace(b"mehr", b"less")):
        with pytest.raises(WebhookVerificationError):
            Webhook(NEW).verify(changed, headers)
    with pytest.raises(WebhookVerificationError):
        stranger.verify(body, headers)
