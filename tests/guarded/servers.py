"""MongoDB and Valkey as docs/security.md has them: TLS with certificates of both sides, and a user for each part.

mongod speaks TLS by itself. The Valkey that tests start is built without, so that a terminator stands before it.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from pymongo import MongoClient

from recovery.stack.server_process import HOST
from recovery.stack.servers import REPLICA_SET, Mongod, Valkey
from recovery.store import layout, roles
from tests.docs.blocks import blocks
from tests.guarded.authority import Authority, Pair
from tests.guarded.marks import Mark, key, password
from tests.tls import Terminator

PAGE = Path(__file__).parents[2] / "docs/security.md"
DATABASE = "recovery"
ADMIN, SWEEP = "admin", "sweep"
USERS = {"worker": roles.WORKER, "operator": roles.OPERATOR, "client": roles.CLIENT, "reader": roles.READER}
"""{user of MongoDB: its role}."""
OF_REDIS = {"reader": "operator", "sweep": "worker"}
"""Who comes to Redis as another."""


class GuardedMongod(Mongod):
    """Lets nobody in without a certificate, and nobody do anything without a login."""

    def __init__(self, folder: Path, own: Pair, authority: Path, client: Pair) -> None:
        super().__init__(folder / "mongod", folder / "logs/mongod.log")
        self._own, self._authority, self._client = own, authority, client
        self._key = folder / "members.key"
        self._key.write_text("a key of letters")
        self._key.chmod(0o400)

    def _command(self) -> Sequence[str | Path]:
        return [
            *super()._command(),
            *("--auth", "--keyFile", self._key, "--tlsMode", "requireTLS"),
            *("--tlsCertificateKeyFile", self._own.both, "--tlsCAFile", self._authority),
        ]

    def connect(self, timeout: float = 0.1) -> MongoClient[dict[str, Any]]:
        return MongoClient(
            HOST,
            self.port,
            directConnection=True,
            serverSelectionTimeoutMS=round(timeout * 1000),
            tls=True,
            tlsCAFile=str(self._authority),
            tlsCertificateKeyFile=str(self._client.both),
        )

    def _form_replica_set(self, client: MongoClient[dict[str, Any]]) -> None:
        # Who comes from this machine may do this, and make the first user, as long as there is none.
        client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": [{"_id": 0, "host": self.address}]})


class Servers:
    """Both, started, with their users and the collections made."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self.folder, self.authority = folder, authority
        self.server = authority.server(HOST, "localhost")
        self.marks: dict[str, Mark] = {name: password(f"m{name}") for name in (*USERS, ADMIN, "beat")}
        self.marks |= {
            f"redis {name}": password(f"r{name}") for name in ("worker", "beat", "client", "operator", ADMIN)
        }
        self.marks["key of messages"] = key("mkey")
        self.marks["key file"] = password("pem")
        self.client = authority.client("anybody")
        self.sweep = authority.client(SWEEP, password=self.marks["key file"].text)
        self.mongod = GuardedMongod(folder, self.server, authority.cert, self.client)
        self.valkey = Valkey(folder / "valkey", folder / "logs/valkey.log")
        self.mongod.start()
        self.valkey.start()
        self.terminator = self.terminated()
        self._make_users()

    def stop(self) -> None:
        self.terminator.close()
        self.mongod.kill()
        self.valkey.kill()

    def terminated(self, port: int = 0, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> Terminator:
        """What speaks TLS before Valkey."""
        return Terminator((self.server.cert, self.server.key), self.valkey.port, self.authority.cert, port, newest)

    def mongo_uri(self, user: str, port: int | None = None, own: Pair | None = None, secret: Mark | None = None) -> str:
        """How this user comes to MongoDB: with a login, or, the sweep, by its certificate alone."""
        options = f"replicaSet={REPLICA_SET}&tls=true&tlsCAFile={quote(str(self.authority.cert), safe='/')}"
        own = own or (self.sweep if user == SWEEP else self.client)
        options += f"&tlsCertificateKeyFile={quote(str(own.both), safe='/')}"
        if user == SWEEP:
            options += f"&authMechanism=MONGODB-X509&tlsCertificateKeyFilePassword={self.marks['key file'].encoded}"
            return f"mongodb://{HOST}:{port or self.mongod.port}/?{options}"
        secret = secret or self.marks[user]
        return f"mongodb://{user}:{secret.encoded}@{HOST}:{port or self.mongod.port}/?authSource=admin&{options}"

    def broker_url(self, user: str, port: int | None = None, secret: Mark | None = None) -> str:
        """How this user comes to Redis."""
        user = OF_REDIS.get(user, user)
        secret = secret or self.marks[f"redis {user}"]
        files = {"ssl_ca_certs": self.authority.cert, "ssl_certfile": self.client.cert, "ssl_keyfile": self.client.key}
        options = "&".join(f"{name}={quote(str(path), safe='/')}" for name, path in files.items())
        return f"rediss://{user}:{secret.encoded}@{HOST}:{port or self.terminator.port}/0?{options}"

    def environment(self, user: str, **more: str) -> dict[str, str]:
        """The settings of whoever comes as this user."""
        return {
            "RECOVERY_MONGO_URI": self.mongo_uri(user),
            "RECOVERY_BROKER_URL": self.broker_url(user),
            "RECOVERY_MESSAGE_KEY": self.marks["key of messages"].text,
            "RECOVERY_DATABASE": DATABASE,
            **more,
        }

    def admin(self) -> MongoClient[dict[str, Any]]:
        """MongoDB as its administrator sees it."""
        return MongoClient(self.mongo_uri(ADMIN))

    def _make_users(self) -> None:
        with self.mongod.connect(5) as first:
            first.admin.command("createUser", ADMIN, pwd=self.marks[ADMIN].text, roles=["root"])
        with self.admin() as client:
            roles.create(client[DATABASE])
            layout.create(client[DATABASE])
            for user, role in USERS.items():
                granted = [{"role": role, "db": DATABASE}]
                client.admin.command("createUser", user, pwd=self.marks[user].text, roles=granted)
            by_certificate = [{"role": roles.WORKER, "db": DATABASE}]
            client["$external"].command("createUser", f"CN={SWEEP},O=clients", roles=by_certificate)
        (rules,) = blocks(PAGE, "text")
        with redis.Redis.from_url(self.valkey.url) as broker:
            for line in reversed(
                [*rules.splitlines(), f"user {ADMIN} on >… ~* &* +@all"]
            ):  # the first switches off who we are
                _, name, *rights = line.split()
                secret = self.marks.get(f"redis {name}")
                given = [one.replace("…", secret.text) if secret else one for one in rights]
                broker.execute_command("ACL", "SETUSER", name, *given)
