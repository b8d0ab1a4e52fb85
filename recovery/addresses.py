"""Addresses of servers: parse them strictly, and show them and drivers' errors without their passwords.

Every address is parsed here before a driver gets it. An address is accepted only if it can be parsed in exactly one
way. An address that is ambiguous (an unescaped `@` or slash in a password, one slash after the scheme) may have its
password where the other reading has a host. Therefore only the scheme of an ambiguous address is shown.
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
# MongoDB accepts the percent-encoded path of a Unix socket as a host.
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
"""Options whose values are names or paths and never secrets. An error message may repeat these values."""
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
"""Known option names in lower case. An unknown name may be a part of a password that was split at a ? or a &."""
_SECRET = re.compile(r"(?i)password|properties|token|secret")
"""Pattern for names of options whose values are never shown."""
_PLAIN = re.compile(
    r"true|false|[0-9]{1,9}|majority|required|optional|none|MONGODB-X509|SCRAM-SHA-(1|256)|(snappy|zlib|zstd)(,(snappy|zlib|zstd))*"
)
"""Pattern for values that cannot be a secret, whichever option has them."""


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of an address that can be parsed in exactly one way, percent-encoded as they were written."""

    scheme: str
    user: str | None
    password: str | None
    hosts: str
    path: str | None
    options: tuple[tuple[str, str], ...]

    def secrets(self) -> Iterator[str]:
        """Yield each text that must not be shown, both as written and percent-decoded."""
        options = [value for name, value in self.options if not _is_shown(name, value)]
        options += [name for name, _ in self.options if name.lower() not in _OPTIONS]
        for text in filter(None, (self.user, self.password, *options)):
            yield from {text, unquote(text), unquote_plus(text)}


def _is_shown(name: str, value: str) -> bool:
    return bool(_NAMES.fullmatch(name) or (_PLAIN.fullmatch(value) and not _SECRET.search(name)))


def read(address: str) -> Address | None:
    """Return the parts of an address; None if the address is invalid or ambiguous."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not all(map(_is_place, match["hosts"].split(","))):
        return None
    pairs = [pair.partition("=") for pair in (match["query"] or "").split("&") if pair]
    if not all(name and equals for name, equals, _ in pairs):
        return None
    options = tuple((unquote(name), value) for name, _, value in pairs)
    return Address(match["scheme"], match["user"], match["password"], match["hosts"], match["path"], options)


_OF_A_SET = re.compile(
    r"(?i)replicaset|directconnection|loadbalanced|readpreference(tags)?|maxstalenessseconds|srvmaxhosts|srvservicename"
)
"""MongoDB's options that choose one server among several."""


def direct(address: str, place: str) -> str:
    """Return the address of one server, `host:port`, of a replica set, with a direct connection to that server.

    Options that choose among several servers are dropped. The server need not be the primary.
    """
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
    """Return the scheme and hosts of an address; only the scheme if the address is invalid or ambiguous."""
    text = address if isinstance(address, str) else ""
    if (parts := read(text)) is not None:
        return f"{parts.scheme}://{parts.hosts}"
    scheme = next((scheme for scheme in SCHEMES if text.lower().startswith(f"{scheme}:")), None)
    return f"{scheme}://***" if scheme else "***"


def told(error: object, *addresses: str) -> str:
    """Return a driver's error text, if it may be shown.

    If the text repeats a secret of one of these addresses, or if one of the addresses cannot be parsed, return only the
    type of the error and, if possible, which option to correct.
    """
    text = str(error)
    for address in addresses:
        parts = read(address)
        if parts is None or any(_repeats(text, secret) for secret in parts.secrets()):
            has_unknown_option = parts is not None and any(name.lower() not in _OPTIONS for name, _ in parts.options)
            hint = (
                "; Unknown option: compare what follows the ? with the names in the driver's manual"
                if has_unknown_option
                else ""
            )
            if not has_unknown_option and parts is not None and (names := _repeated(text, parts)):
                hint = f"; correct the value of {' and '.join(names)}"
            return f"{type(error).__name__} (its text is not shown, because it repeats a part of the address{hint})"
    return text


def _repeated(text: str, parts: Address) -> list[str]:
    """Return the names of the options whose values a text repeats."""
    values = {name: {value, unquote(value), unquote_plus(value)} for name, value in parts.options if value}
    return [name for name, forms in values.items() if any(_repeats(text, form) for form in forms)]


def _repeats(text: str, secret: str) -> bool:
    # A short secret may occur inside other words by chance. Only as a whole word is it a repetition.
    if len(secret) < 4:
        return re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", text) is not None
    return secret in text
