"""REL-L42: no address that is not public passes, however it is written or wrapped."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.web.address import NAT64, RANGES_V4, RANGES_V6, Ip, Range, find_non_public_range

Judge = Callable[[Ip], Range | None]
PREFIX = "2a00:1450:4001:81b"

REFUSED = [
    *(str(IPv4Address(0)), "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1"),
    "127.255.255.255",
    *("168.63.129.16", "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.255", "192.0.0.1"),
    *("192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255"),
    *("198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "::7f00:1", "::ffff:7f00:1", "::ffff:808:808", "::ffff:0:7f00:1", "64:ff9b::a00:1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "100::1", "2001::1", "2001:2::1"),
    *("2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1", "3ffe::1", "3fff::1"),
    *("4000::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fec0::1", "ff02::1"),
    *(f"{PREFIX}::5efe:7f00:1", f"{PREFIX}:200:5efe:a00:1", "8000::1", "ff0e::1"),
]
PASSED = ["1.1.1.1", "8.8.8.8", "93.184.215.14", "172.15.255.255", "172.32.0.0", "100.63.255.255"]
PASSED += ["100.128.0.0", "198.17.255.255", "223.255.255.255", "11.0.0.0", "9.255.255.255", "128.0.0.1"]
PASSED += ["2606:4700::1", "2a00:1450:4001:81b::200e", "64:ff9b::808:808", f"{PREFIX}::5efe:808:808"]

V4 = st.integers(0, 2**32 - 1).map(IPv4Address)
NEAR_V4 = st.builds(
    lambda row, end, step: IPv4Address((int(row.network[end]) + step) % 2**32),
    st.sampled_from(RANGES_V4),
    st.sampled_from([0, -1]),
    st.integers(-2, 2),
)
NEAR_V6 = st.builds(
    lambda row, end, step: IPv6Address((int(row.network[end]) + step) % 2**128),
    st.sampled_from(RANGES_V6),
    st.sampled_from([0, -1]),
    st.integers(-2, 2),
)
V6 = st.one_of(st.integers(0, 2**128 - 1), st.integers(0x2 << 124, (0x4 << 124) - 1)).map(IPv6Address)
WRAPPINGS: dict[str, Callable[[int], int]] = {
    "mapped": lambda v4: 0xFFFF << 32 | v4,
    "compatible": lambda v4: v4,
    "translated": lambda v4: 0xFFFF << 48 | v4,
    "nat64": lambda v4: 0x0064FF9B << 96 | v4,
    "local nat64": lambda v4: 0x0064FF9B0001 << 80 | v4,
    "local nat64 /48": lambda v4: 0x0064FF9B0001 << 80 | (v4 >> 16) << 64 | (v4 & 0xFFFF) << 40,
    "6to4": lambda v4: 0x2002 << 112 | v4 << 80 | 1,
    "teredo client": lambda v4: 0x20010000 << 96 | 0x5DB8D822 << 64 | (v4 ^ 0xFFFFFFFF),
    "teredo server": lambda v4: 0x20010000 << 96 | v4 << 64,
    "isatap": lambda v4: int(IPv6Address(f"{PREFIX}::")) | 0x5EFE << 32 | v4,
    "isatap global": lambda v4: int(IPv6Address(f"{PREFIX}::")) | 0x02005EFE << 32 | v4,
}


@pytest.mark.covers("REL-L42")
@pytest.mark.parametrize("text", REFUSED)
def test_address_that_is_not_public_is_refused(text: str) -> None:
    """One of every range, and of every way to put one address inside another."""
    address: Ip = IPv6Address(text) if ":" in text else IPv4Address(text)
    found = find_non_public_range(address)
    assert found is not None
    assert found.reason


@pytest.mark.parametrize("text", PASSED)
def test_public_address_passes(text: str) -> None:
    """Also right alongside a range, and inside NAT64, by which networks without IPv4 reach the public one."""
    assert find_non_public_range(IPv6Address(text) if ":" in text else IPv4Address(text)) is None


def is_as_strict_as_python(judge: Judge) -> None:
    """What Python's own table calls not global is refused."""

    @given(st.one_of(V4, NEAR_V4, V6, NEAR_V6))
    def check(address: Ip) -> None:
        if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
            assert judge(address) is not None or address in NAT64

    check()


def refuses_every_wrapping(judge: Judge) -> None:
    """An IPv4 address that is refused by itself is refused inside any IPv6 address."""

    @given(st.one_of(V4, NEAR_V4))
    def check(inner: IPv4Address) -> None:
        for how, wrap in WRAPPINGS.items():
            if judge(inner) is not None:
                assert judge(IPv6Address(wrap(int(inner)))) is not None, how

    check()


def test_table_is_as_strict_as_python() -> None:
    """For any address, those at the edges of ranges above all."""
    is_as_strict_as_python(find_non_public_range)


@pytest.mark.covers("REL-L42")
def test_no_wrapping_hides_an_address() -> None:
    """Mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP."""
    refuses_every_wrapping(find_non_public_range)


@pytest.mark.parametrize("how", ["nat64", "isatap", "6to4", "mapped"])
def test_forgotten_wrapping_is_found(how: str) -> None:
    """The property fails for a table that lets one wrapping pass."""

    def forgetful(address: Ip) -> Range | None:
        number = int(address)
        if isinstance(address, IPv6Address):
            inner = number >> 80 & 0xFFFFFFFF if how == "6to4" else number & 0xFFFFFFFF
            if WRAPPINGS[how](inner) == number:
                return None
        return find_non_public_range(address)

    with pytest.raises(AssertionError):
        refuses_every_wrapping(forgetful)


@pytest.mark.parametrize("row", [*RANGES_V4, *RANGES_V6], ids=lambda row: str(row.network))
def test_range_is_refused_to_its_ends(row: Range) -> None:
    """The first and the last address of each row."""
    assert find_non_public_range(row.network[0]) is not None
    assert find_non_public_range(row.network[-1]) is not None
