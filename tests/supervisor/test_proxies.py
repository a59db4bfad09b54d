"""Which way the agent takes: settings before variables, and exceptions that mean what they say (A-49, BH-037)."""

from __future__ import annotations

import pytest

from stateous_supervisor.agent.proxies import (
    BadProxy,
    is_excepted,
    parse_no_proxy,
    parse_proxy,
    proxy_for,
    read_entry,
)

CP = "https://cp.example"
HOSTILE = "10.0.0.0/8,localhost,.internal,[::1]:8080,*"


@pytest.mark.parametrize(
    ("variables", "settings", "found"),
    [
        ({}, {}, None),
        ({"https_proxy": "http://p:1"}, {}, "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, {}, "http://p:1"),
        ({"HTTPS_PROXY": "http://big:1", "https_proxy": "http://small:1"}, {}, "http://small:1"),
        ({"HTTP_PROXY": "http://p:1"}, {}, None),
        ({"all_proxy": "http://p:1"}, {}, "http://p:1"),
        ({"ALL_PROXY": "http://p:1", "https_proxy": "http://own:1"}, {}, "http://own:1"),
        ({"https_proxy": "proxy.example:3128"}, {}, "http://proxy.example:3128"),
        ({"https_proxy": "  "}, {}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "cp.example"}, {}, None),
        ({"https_proxy": "http://p:1", "NO_PROXY": "cp.example"}, {}, None),
        ({"https_proxy": "http://p:1", "no_proxy": "other.example"}, {}, "http://p:1"),
        ({"https_proxy": "http://p:1", "no_proxy": HOSTILE}, {}, None),
        ({"https_proxy": "http://p:1"}, {"proxy": "http://mine:2"}, "http://mine:2"),
        ({"no_proxy": "cp.example"}, {"proxy": "http://mine:2"}, "http://mine:2"),
        ({}, {"proxy": "http://mine:2", "no_proxy": "cp.example"}, None),
        ({"https_proxy": "http://p:1"}, {"no_proxy": ".example"}, None),
        (
            {"https_proxy": "http://p:1", "no_proxy": "cp.example"},
            {"no_proxy": "other.example"},
            "http://p:1",
        ),
        ({"https_proxy": "nonsense://p"}, {"no_proxy": "*"}, None),
        ({"https_proxy": "nonsense://p"}, {"proxy": "http://mine:2"}, "http://mine:2"),
    ],
)
def test_explicit_settings_beat_the_proxy_variables_a_49(
    variables: dict[str, str], settings: dict[str, str], found: str | None
) -> None:
    given = {"proxy": None, "no_proxy": None, **settings}

    assert proxy_for(CP, environment=variables, **given) == found


@pytest.mark.parametrize(
    ("no_proxy", "url", "is_direct"),
    [
        ("cp.example", "http://cp.example:8080", True),
        ("cp.example", "http://CP.example.", True),
        ("CP.EXAMPLE", CP, True),
        ("cp.example", "http://sub.cp.example", True),
        ("cp.example", "http://nocp.example", False),
        (".example", CP, True),
        ("*.example", CP, True),
        (".internal", "http://a.b.internal", True),
        (".internal", "http://internal", True),
        (".internal", "http://internal.example", False),
        ("a.example b.example,  cp.example", CP, True),
        ("a.example\tcp.example", CP, True),
        (",,cp.example,", CP, True),
        ("*", CP, True),
        ("", CP, False),
        ("10.0.0.0/8", "http://10.9.8.7:8080", True),
        ("10.0.0.0/8", "http://11.0.0.1", False),
        ("10.0.0.0/8", CP, False),
        ("10.1.2.3/8", "http://10.9.8.7", True),
        ("10.1.2.3", "http://10.1.2.3", True),
        ("10.1.2.3", "http://10.1.2.30", False),
        ("10.1.2.3:80", "http://10.1.2.3", True),
        ("10.1.2.3:81", "http://10.1.2.3", False),
        ("cp.example:443", CP, True),
        ("cp.example:80", CP, False),
        ("fd00::/8", "http://[fd12::1]:8080", True),
        ("fd00::/8", "http://[fe80::1]", False),
        ("::1", "http://[::1]:8080", True),
        ("[::1]", "http://[::1]:8080", True),
        ("[::1]:8080", "http://[::1]:8080", True),
        ("[::1]:8080", "http://[::1]:8081", False),
        ("0:0:0:0:0:0:0:1", "http://[::1]", True),
        ("10.0.0.0/8", "http://[::ffff:10.1.1.1]", True),
        ("10.0.0.0/99,///,:,[,http://x", "http://10.1.1.1", False),
        ("10.0.0.0/99,///,:,[,http://x,cp.example", CP, True),
        (HOSTILE, "http://anything.at.all", True),
    ],
)
def test_exceptions_are_hosts_suffixes_and_networks_a_49(no_proxy: str, url: str, is_direct: bool) -> None:
    assert is_excepted(url, no_proxy) is is_direct
    assert proxy_for(url, proxy="http://p:1", no_proxy=no_proxy or None, environment={}) == (
        None if is_direct else "http://p:1"
    )


def test_a_variable_that_names_no_http_proxy_is_told_without_its_password_bh_037() -> None:
    with pytest.raises(BadProxy) as caught:
        proxy_for(CP, proxy=None, no_proxy=None, environment={"ALL_PROXY": "socks5://me:secret@p:1"})

    assert "ALL_PROXY" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "value", ["", "p", "ftp://p:1", "http://", "http://p:99999", "http://p q", 5, "http://[::1"]
)
def test_a_proxy_must_be_the_url_of_one(value: object) -> None:
    with pytest.raises(ValueError, match="must be the URL of an http or https proxy"):
        parse_proxy(value)


@pytest.mark.parametrize("value", ["10.0.0.0/99", "a.example,///", "http://cp.example", "", 5, "a\nb"])
def test_a_list_that_means_nothing_is_refused_in_the_configuration(value: object) -> None:
    with pytest.raises(ValueError, match="must be hosts, suffixes and networks"):
        parse_no_proxy(value)


@pytest.mark.parametrize("value", [HOSTILE, "a.example b.example", "*.internal, fd00::/8,[::1]:8080"])
def test_a_list_that_means_something_is_taken_as_it_is(value: str) -> None:
    assert parse_no_proxy(value) == value


def test_an_entry_that_means_nothing_has_nobody() -> None:
    assert read_entry("///") is None
