"""Where a request may go, and where never."""

from ipaddress import ip_address

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncefence.activities.target import (
    Target,
    TargetPolicy,
    TargetRefusal,
    check_target,
    is_public,
    refused_address,
)

BASE = "https://api.example.com"
OUTSIDE = TargetPolicy(is_local=False)
LOCAL = TargetPolicy(is_local=True)


class TestTarget:
    @pytest.mark.parametrize(
        "target",
        [
            "/crm/v3/objects/contacts/501",
            "/crm/v3/objects/contacts/501?properties=jobtitle,email&archived=false",
            "/contacts/a%40b.com?idProperty=email",
            "/api/v2/prospects?filter[emails]=a%40b.com&page[size]=2",
            "/files/a%2Fb",
            "/odd/...three",
            "/q?next=/../x",
            "/",
        ],
    )
    def test_below_the_bindings_origin_is_kept_as_it_is(self, target: str) -> None:
        """What the pack's template made goes out byte for byte (C242)."""
        expected = Target(scheme="https", host="api.example.com", port=443, path_and_query=target)

        assert expected == check_target(BASE, target, OUTSIDE)

    @pytest.mark.parametrize(
        ("target", "refusal"),
        [
            ("https://evil.example/x", TargetRefusal.NOT_ROOTED),
            ("crm/v3", TargetRefusal.NOT_ROOTED),
            ("", TargetRefusal.NOT_ROOTED),
            ("?x=1", TargetRefusal.NOT_ROOTED),
            ("//evil.example/x", TargetRefusal.SCHEME_RELATIVE),
            ("/a/../../admin", TargetRefusal.DOT_SEGMENT),
            ("/a/./b", TargetRefusal.DOT_SEGMENT),
            ("/a/%2e%2e/admin", TargetRefusal.DOT_SEGMENT),
            ("/a/.%2E/admin", TargetRefusal.DOT_SEGMENT),
            ("/a/..%2fadmin", TargetRefusal.DOT_SEGMENT),
            ("/a/%252e%252e/admin", TargetRefusal.DOT_SEGMENT),
            ("/a/..;x=1/admin", TargetRefusal.DOT_SEGMENT),
            ("/a/..", TargetRefusal.DOT_SEGMENT),
            ("/a/..?x=1", TargetRefusal.DOT_SEGMENT),
            ("/%5cevil.example", TargetRefusal.BACKSLASH),
            ("/\\evil.example", TargetRefusal.BACKSLASH),
            ("/a@evil.example", TargetRefusal.AT_SIGN),
            ("/a\r\nX: y", TargetRefusal.CONTROL_CHARACTER),
            ("/a\x00", TargetRefusal.CONTROL_CHARACTER),
            ("/a%0d%0aX:%20y", TargetRefusal.CONTROL_CHARACTER),
            ("/a?x=%00", TargetRefusal.CONTROL_CHARACTER),
            ("/a#b", TargetRefusal.FRAGMENT),
            ("/a b", TargetRefusal.CHARACTER),
            ("/ä", TargetRefusal.CHARACTER),
            ("/a|b", TargetRefusal.CHARACTER),
            ("/100%", TargetRefusal.ESCAPE),
            ("/%zz", TargetRefusal.ESCAPE),
            ("/" + "a" * 9_000, TargetRefusal.LENGTH),
        ],
    )
    def test_that_could_lead_elsewhere_is_refused(
        self, target: str, refusal: TargetRefusal
    ) -> None:
        """Each form by which a path has escaped its host somewhere (C242)."""
        assert refusal is check_target(BASE, target, OUTSIDE)

    @given(st.text(max_size=60) | st.text("/.%2eEfF\\@:;?#5c", max_size=40))
    def test_that_is_accepted_reads_the_same_to_another_parser(self, tail: str) -> None:
        """Guard and client must agree on where a request goes, or the guard guards nothing."""
        checked = check_target(BASE, "/" + tail, OUTSIDE)

        if isinstance(checked, Target):
            url = httpx.URL(checked.url)
            assert (url.scheme, url.host, url.port) == ("https", "api.example.com", None)
            assert url.raw_path == checked.path_and_query.encode()
            assert ".." not in checked.path_and_query.partition("?")[0].split("/")


class TestBaseUrl:
    @pytest.mark.parametrize(
        "base_url",
        [
            "https://user:pass@api.example.com",
            "https://api.example.com/path",
            "https://api.example.com?x=1",
            "https://api.example.com#x",
            "https://api.example.com:0",
            "https://api.example.com:70000",
            "https://api.example.com:443:443",
            "https://api.exa mple.com",
            "https://\u0430pi.example.com",
            "https://api..example.com",
            "ftp://api.example.com",
            "//api.example.com",
            "api.example.com",
            "https://",
            "https://" + ".".join(["a" * 60] * 5),
            "",
        ],
    )
    def test_that_is_no_plain_origin_is_refused(self, base_url: str) -> None:
        """The binding gives scheme, host and port; everything else comes from the pack."""
        assert check_target(base_url, "/x", LOCAL) is TargetRefusal.BASE_URL

    def test_may_be_written_in_capitals_and_with_a_slash(self) -> None:
        """The same origin in another spelling is the same origin."""
        expected = Target(scheme="https", host="api.example.com", port=8443, path_and_query="/x")

        assert expected == check_target("HTTPS://API.Example.COM:8443/", "/x", OUTSIDE)

    def test_in_plain_http_is_for_local_bindings_only(self) -> None:
        """A token never crosses the internet in clear."""
        assert check_target("http://api.example.com", "/x", OUTSIDE) is TargetRefusal.PLAIN_HTTP
        assert isinstance(check_target("http://127.0.0.1:8080", "/x", LOCAL), Target)

    def test_may_be_an_address_literal(self) -> None:
        """It is judged like the address that a name resolves to."""
        checked = check_target("http://[::1]:8080", "/x", LOCAL)

        assert isinstance(checked, Target)
        assert checked.url == "http://[::1]:8080/x"


class TestAddress:
    @pytest.mark.parametrize(
        "address",
        [
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.9",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "224.0.1.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "::ffff:127.0.0.1",
            "::8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fe80::1%1",
            "fec0::1",
            "ff02::1",
        ],
    )
    def test_that_is_not_one_public_host_is_refused_unless_local(self, address: str) -> None:
        """A provider's name must not lead into our own network (C243)."""
        assert refused_address([address], OUTSIDE) is TargetRefusal.ADDRESS
        assert refused_address([address], LOCAL) is None

    @pytest.mark.parametrize("address", ["8.8.8.8", "104.16.1.1", "2606:4700::1111"])
    def test_that_is_public_is_allowed(self, address: str) -> None:
        """A guard that refuses everything guards nothing."""
        assert is_public(ip_address(address))
        assert refused_address([address], OUTSIDE) is None

    def test_beside_a_private_one_is_refused(self) -> None:
        """A name that points outward and inward at once is a trap or a mistake (C243)."""
        assert refused_address(["8.8.8.8", "10.0.0.1"], OUTSIDE) is TargetRefusal.ADDRESS
