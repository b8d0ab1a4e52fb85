"""Addresses of servers, which hold passwords: what may be shown of one, and of what a driver says about it.

An address is read here before any driver sees it, and only one that can be read in a single way is used. One that can
be read in two (an `@` or a slash in a password, one slash after the scheme) may have its password wherever the other
reading has a host, so nothing of it is shown but the scheme.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, unquote_plus

SCHEMES = ("mongodb+srv", "mongodb", "rediss", "redis")

_LETTERS = r"[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2}"
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])"
# A socket's path, percent-encoded, is a host of MongoDB's.
_PLACE = rf"(?:{_HOST}(?::[0-9]{{1,5}})?|%2[Ff][A-Za-z0-9._%-]+\.sock)"
_ADDRESS = re.compile(
    rf"(?P<scheme>{'|'.join(map(re.escape, SCHEMES))})://"
    rf"(?:(?P<user>(?:{_LETTERS})*)(?::(?P<password>(?:{_LETTERS})*))?@)?"
    rf"(?P<hosts>{_PLACE}(?:,{_PLACE})*)"
    r"(?:/(?P<path>[A-Za-z0-9_-]*))?"
    r"(?:\?(?P<query>[^#@?\s]*))?"
)

_NAMES = re.compile(
    r"(?i)authsource|replicaset|tlscafile|tlscertificatekeyfile|tlscrlfile|ssl_(ca_certs|certfile|keyfile)"
)
"""Options whose values are names or paths, and no secret. An error that repeats one says which is wrong."""
_KNOWN = (
    "appname authmechanism authmechanismproperties authsource compressors connect connecttimeoutms "
    "datetime_conversion directconnection driver enableoverloadretargeting fsync heartbeatfrequencyms journal "
    "loadbalanced localthresholdms maxadaptiveretries maxconnecting maxidletimems maxpoolsize maxstalenessseconds "
    "minpoolsize readconcernlevel readpreference readpreferencetags replicaset retryreads retrywrites server_api "
    "servermonitoringmode serverselectiontimeoutms sockettimeoutms srvallowedhostssuffix srvmaxhosts srvservicename "
    "ssl ssl_ca_certs ssl_cert_reqs ssl_certfile ssl_check_hostname ssl_keyfile timeoutms tls "
    "tlsallowinvalidcertificates tlsallowinvalidhostnames tlscafile tlscertificatekeyfile "
    "tlscertificatekeyfilepassword tlscrlfile tlsdisableocspendpointcheck tlsinsecure tz_aware "
    "unicode_decode_error_handler uuidrepresentation w waitqueuemultiple waitqueuetimeoutms wtimeoutms "
    "zlibcompressionlevel "
)
_OPTIONS = frozenset(_KNOWN.split())
"""Names of options, in small letters. One of another name may be the rest of a password that was cut by a ? or a &."""
_SECRET = re.compile(r"(?i)password|properties|token|secret")
"""In the name of an option whose value is shown in no case."""
_PLAIN = re.compile(
    r"true|false|[0-9]{1,9}|majority|required|optional|none|MONGODB-X509|SCRAM-SHA-(1|256)|(snappy|zlib|zstd)(,(snappy|zlib|zstd))*"
)
"""Values that are no secret whatever they are given for."""


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of an address that can be read in a single way, percent-encoded as they were written."""

    scheme: str
    user: str | None
    password: str | None
    hosts: str
    path: str | None
    options: tuple[tuple[str, str], ...]

    def secrets(self) -> Iterator[str]:
        """What is not to be shown, as it is written and as it is read."""
        options = [value for name, value in self.options if not _is_shown(name, value)]
        options += [name for name, _ in self.options if name.lower() not in _OPTIONS]
        for text in filter(None, (self.user, self.password, *options)):
            yield from {text, unquote(text), unquote_plus(text)}


def _is_shown(name: str, value: str) -> bool:
    return bool(_NAMES.fullmatch(name) or (_PLAIN.fullmatch(value) and not _SECRET.search(name)))


def read(address: str) -> Address | None:
    """Return the parts of an address; None if it can't be read for certain."""
    found = _ADDRESS.fullmatch(address)
    if found is None or not all(map(_is_place, found["hosts"].split(","))):
        return None
    pairs = [pair.partition("=") for pair in (found["query"] or "").split("&") if pair]
    if not all(name and equals for name, equals, _ in pairs):
        return None
    options = tuple((unquote(name), value) for name, _, value in pairs)
    return Address(found["scheme"], found["user"], found["password"], found["hosts"], found["path"], options)


_OF_A_SET = re.compile(
    r"(?i)replicaset|directconnection|loadbalanced|readpreference(tags)?|maxstalenessseconds|srvmaxhosts|srvservicename"
)
"""Options of MongoDB that say how one of several servers is chosen."""


def direct(address: str, place: str) -> str:
    """Return MongoDB's address as that of one of its servers, `host:port`, whatever that server's part in its set."""
    parts = read(address)
    if parts is None:
        return f"mongodb://{place}/?directConnection=true"
    options = [f"{name}={value}" for name, value in parts.options if not _OF_A_SET.fullmatch(name)]
    if parts.scheme == "mongodb+srv" and not any(name.lower() in ("tls", "ssl") for name, _ in parts.options):
        options.append("tls=true")
    login = "" if parts.user is None else parts.user + ("" if parts.password is None else f":{parts.password}") + "@"
    return f"mongodb://{login}{place}/{parts.path or ''}?{'&'.join([*options, 'directConnection=true'])}"


def _is_place(place: str) -> bool:
    host, bracket, rest = place.rpartition("]")
    name, _, port = (rest if bracket else place).partition(":")
    try:
        if bracket:
            ipaddress.IPv6Address(host[1:])
    except ValueError:
        return False
    return len(name) < 254 and (not port or 0 < int(port) < 65536)


def public(address: object) -> str:
    """Return an address as it may be shown: its scheme and hosts. If it can't be read for certain, only its scheme."""
    text = address if isinstance(address, str) else ""
    if (parts := read(text)) is not None:
        return f"{parts.scheme}://{parts.hosts}"
    scheme = next((scheme for scheme in SCHEMES if text.lower().startswith(f"{scheme}:")), None)
    return f"{scheme}://***" if scheme else "***"


def told(error: object, *addresses: str) -> str:
    """Return a driver's text as it may be shown. If it repeats a secret of these addresses, return only what kind of
    error it is."""
    text = str(error)
    for address in addresses:
        parts = read(address)
        if parts is None or any(_repeats(text, secret) for secret in parts.secrets()):
            odd = parts is not None and any(name.lower() not in _OPTIONS for name, _ in parts.options)
            more = "; Unknown option: compare what follows the ? with the names in the driver's manual" if odd else ""
            if not odd and parts is not None and (names := _repeated(text, parts)):
                more = f"; correct the value of {' and '.join(names)}"
            return f"{type(error).__name__} (its text is not shown, since it repeats a part of the address{more})"
    return text


def _repeated(text: str, parts: Address) -> list[str]:
    """Return the names of the options whose values a text repeats."""
    values = {name: {value, unquote(value), unquote_plus(value)} for name, value in parts.options if value}
    return [name for name, forms in values.items() if any(_repeats(text, form) for form in forms)]


def _repeats(text: str, secret: str) -> bool:
    # A short one is in every sentence; as a word of its own it is not there by chance.
    if len(secret) < 4:
        return re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", text) is not None
    return secret in text
