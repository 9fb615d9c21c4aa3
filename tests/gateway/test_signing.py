"""Signatures, against the example that Standard Webhooks publishes."""

from telegram_gateway.signing import read_signing_secret, signed_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_published_example() -> None:
    key = read_signing_secret(SECRET)
    assert key is not None
    headers = signed_headers(
        (key, b"k" * 24),
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
        body=b'{"test": 2432232314}',
    )
    first, second = headers["webhook-signature"].split(" ")
    assert first == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert second.startswith("v1,")
    assert first != second


def test_an_invalid_signing_secret_is_refused() -> None:
    for text in ("", "whsec_", "whsec_short", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_é"):
        assert read_signing_secret(text) is None
