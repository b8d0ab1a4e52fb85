"""What may be shown of an address, and of what a driver says about it."""

from __future__ import annotations

import pytest

from recovery.addresses import public, read, told

SHOWN = {
    "mongodb://u:p@h1:27017,h2/db?replicaSet=rs0": "mongodb://h1:27017,h2",
    "mongodb+srv://u:p@h.example": "mongodb+srv://h.example",
    "redis://:p%40%2Fw@h:6379/0": "redis://h:6379",
    "rediss://[::1]:1/0?ssl_ca_certs=/etc/ca.pem": "rediss://[::1]:1",
    # May be read in two ways, or in none.
    "mongodb://u:p@ss@h": "mongodb://***",
    "mongodb://u:p/w@h": "mongodb://***",
    "mongodb://u:p?w@h": "mongodb://***",
    "mongodb://u:p#w@h": "mongodb://***",
    "mongodb://u:p:w@h": "mongodb://***",
    "mongodb://u:%zz@h": "mongodb://***",
    "mongodb://u:secret": "mongodb://***",
    "mongodb:/u:p@h": "mongodb://***",
    "MONGODB://u:p@h": "mongodb://***",
    "redis:u:p@h": "redis://***",
    "redis://h/0?x=a@b": "redis://***",
    "redis://h?password": "redis://***",
    "mongodb://h:0": "mongodb://***",
    "mongodb://h:65536": "mongodb://***",
    "mongodb://[1::2::3]": "mongodb://***",
    "mongodb://h\x1b[2J": "mongodb://***",
    "http://u:p@h": "***",
    "u:p@h": "***",
    "": "***",
}


@pytest.mark.parametrize("address", SHOWN)
def test_shown(address: str) -> None:
    assert public(address) == SHOWN[address]


def test_no_text_is_no_address() -> None:
    assert public(None) == public({"password": "secret"}) == "***"


def test_what_can_be_read_in_two_ways_takes_no_time() -> None:
    for odd in ("mongodb://" + "a" * 100_000 + "!", "redis://" + "a." * 50_000 + "!", "mongodb://h,h" * 20_000):
        assert read(odd) is None


@pytest.mark.parametrize(
    ("text", "address", "is_told"),
    [
        ("h:1: refused", "mongodb://u:secret@h:1", True),
        ("bad option secret", "mongodb://u:secret@h:1", False),
        ("bad user s/x", "mongodb://s%2Fx:p@h:1", False),
        ("replica set rs0 is unknown", "mongodb://h/?replicaSet=rs0", True),
        ("session is hidden", "mongodb://h/?authMechanismProperties=hidden", False),
        ("all of it is at hand", "redis://:a@h", True),
        ("password a is wrong", "redis://:a@h", False),
        ("Unknown option: secret", "mongodb://h/?secret=1", False),
        ("Unknown option: secret.", "mongodb://h/?tls=true&secret=1", False),
        ("maxPoolSize is no number", "mongodb://h/?maxPoolSize=x9", True),
        ("bad key 90876543", "mongodb://h/?tlsCertificateKeyFilePassword=90876543", False),
        ("nothing of it", "mongodb://u:p@ss@h", False),
    ],
)
def test_what_a_driver_says(text: str, address: str, is_told: bool) -> None:
    said = told(ValueError(text), address)
    assert is_told == (said == text)
    assert is_told or said.startswith("ValueError (its text is not shown, because it repeats a part of the address")


def test_an_option_whose_value_is_to_blame_is_named_without_it() -> None:
    said = told(KeyError("mine"), "mongodb://h/?tls=true&datetime_conversion=mine")
    assert said.endswith("a part of the address; correct the value of datetime_conversion)") and "mine" not in said
