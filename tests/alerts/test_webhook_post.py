"""Where messages may go, and what of an answer is kept."""

import ipaddress

import pytest

from forge_jobs.kit.webhook_post import NotDelivered, is_public, post_message
from rigs.storms.webhook_receiver import receiving


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "224.0.0.1",
        "100.64.0.1", "::1", "fe80::1", "fc00::1", "fec0::1", "::ffff:127.0.0.1",
        "64:ff9b::7f00:1", "2002:7f00:1::", "::7f00:1", "168.63.129.16", "240.0.0.1",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111"])
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]"])
def test_every_spelling_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(NotDelivered, match="FORGE_ALERT_HOSTS"):
        post_message(f"https://{host}:1/x", b"{}", {})


def test_without_tls_only_listed_hosts_are_called() -> None:
    with receiving() as receiver:
        with pytest.raises(NotDelivered, match="without TLS"):
            post_message(receiver.url, b"{}", {})
        assert post_message(receiver.url, b"{}", {}, private_hosts=["127.0.0.1"]) == 204
        assert len(receiver.requests) == 1


def test_a_metadata_service_is_refused_even_if_its_host_is_listed() -> None:
    with pytest.raises(NotDelivered, match="not public"):
        post_message("http://169.254.169.254/", b"{}", {}, private_hosts=["169.254.169.254"])


@pytest.mark.parametrize(("status", "text"), [(302, "redirects"), (404, "404"), (500, "500")])
def test_other_answers_are_failures(status: int, text: str) -> None:
    with receiving() as receiver:
        receiver.status = status
        with pytest.raises(NotDelivered, match=text) as raised:
            post_message(receiver.url, b"{}", {}, private_hosts=["127.0.0.1"])
        assert "secret-path" not in str(raised.value)


def test_a_receiver_that_is_gone_is_a_failure() -> None:
    with receiving() as receiver:
        pass
    with pytest.raises(NotDelivered, match="cannot be reached"):
        post_message(receiver.url, b"{}", {}, private_hosts=["127.0.0.1"])
