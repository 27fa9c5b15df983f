"""Who may call what: bearer tokens with roles and scopes, kept as hashes in a TOML file.

    [[tokens]]
    name = "ingest workers"
    sha256 = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
    roles = ["worker"]
    scopes = ["3f1c5a52-0e57-4c8e-9d1d-2f6f6f3f0f11"]     # or "*": every scope

A token is 32 random bytes as text (`make`), so that a plain hash keeps it as well as a slow one would. What is wrong in
a file raises `InvalidArgumentError` with the entry and the rule.
"""

import hashlib
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from telha_jobs.errors import InvalidArgumentError
from telha_jobs.rpc.status import ROLE_MISSING, SCOPE_FORBIDDEN, TOKEN_UNKNOWN, RemoteRefusalError
from telha_jobs.rules import shown

_FIELDS: Final = frozenset({"name", "sha256", "roles", "scopes"})
_FILE_BYTES_MAX: Final = 16 << 20
_TOKEN_BYTES: Final = 32
_SCHEME: Final = "bearer "


class Role(Enum):
    """What a token may do: add jobs, work on them, or look after them."""

    PRODUCER = "producer"
    WORKER = "worker"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Access:
    """What a caller may do. `scopes` None: everywhere."""

    name: str
    roles: frozenset[Role]
    scopes: frozenset[bytes] | None

    def require_role(self, role: Role) -> None:
        """Raise unless the caller has the role."""
        if role not in self.roles:
            raise RemoteRefusalError(
                ROLE_MISSING, f"this call needs a token with the role {role.value}", {"role": role.value}
            )

    def require_scope(self, field: str, scope: bytes) -> None:
        """Raise unless the caller may touch the scope that it named. Whether there is anything in it is not told."""
        if self.scopes is not None and scope not in self.scopes:
            raise RemoteRefusalError(
                SCOPE_FORBIDDEN, f"{field}: the token may not touch scope {UUID(bytes=scope)}", {"field": field}
            )

    def require_every_scope(self) -> None:
        """Raise unless the caller may touch every scope: the call is about all of them at once."""
        if self.scopes is not None:
            raise RemoteRefusalError(SCOPE_FORBIDDEN, "this call needs a token that may touch every scope")


EVERYTHING: Final = Access("", frozenset(Role), None)
"""Of a caller of a server that asks for no tokens."""


class Tokens:
    """The tokens that a server knows, by their hashes."""

    def __init__(self, by_hash: Mapping[bytes, Access]) -> None:
        self._by_hash = dict(by_hash)

    @classmethod
    def load(cls, path: Path) -> "Tokens":
        """Read the file. Raises `InvalidArgumentError`."""
        try:
            with path.open("rb") as file:
                content = file.read(_FILE_BYTES_MAX + 1)
            if len(content) > _FILE_BYTES_MAX:
                raise InvalidArgumentError(str(path), f"must have at most {_FILE_BYTES_MAX} bytes")
            found = tomllib.loads(content.decode("utf-8"))
        except OSError as error:
            raise InvalidArgumentError(str(path), f"cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            if isinstance(error, InvalidArgumentError):
                raise
            raise InvalidArgumentError(str(path), f"is no TOML: {str(error)[:200]}") from None
        entries = found.get("tokens")
        if set(found) != {"tokens"} or not isinstance(entries, list) or not entries:
            raise InvalidArgumentError(str(path), "must have [[tokens]] tables, at least one, and nothing else")
        by_hash: dict[bytes, Access] = {}
        for index, entry in enumerate(entries):
            where = f"{path}: tokens[{index}]"
            digest, access = _entry(where, entry)
            if digest in by_hash:
                raise InvalidArgumentError(f"{where}.sha256", "stands twice: each token has one entry")
            by_hash[digest] = access
        return cls(by_hash)

    def access(self, authorization: str | None) -> Access:
        """What the bearer of this `authorization` may do; raises unless the token is known."""
        if authorization is not None and authorization[: len(_SCHEME)].lower() == _SCHEME:
            token = authorization[len(_SCHEME) :].strip()
            # Looked up by its hash: how long that takes tells nothing about the tokens that are known.
            access = self._by_hash.get(hash_of(token))
            if access is not None:
                return access
        raise RemoteRefusalError(TOKEN_UNKNOWN, "give a token this server knows: `authorization: Bearer TOKEN`")


def make() -> str:
    """A new token."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def hash_of(token: str) -> bytes:
    """What a file keeps of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _entry(where: str, entry: Any) -> tuple[bytes, Access]:
    if not isinstance(entry, dict):
        raise InvalidArgumentError(where, "must be a table")
    if set(entry) != _FIELDS:
        raise InvalidArgumentError(where, f"must have {', '.join(sorted(_FIELDS))}, and nothing else")
    name = entry["name"]
    if not isinstance(name, str) or not name:
        raise InvalidArgumentError(f"{where}.name", f"must be text, not {shown(name)}")
    return _digest(where, entry["sha256"]), Access(name, _roles(where, entry["roles"]), _scopes(where, entry["scopes"]))


def _digest(where: str, value: Any) -> bytes:
    try:
        digest = bytes.fromhex(value)
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise InvalidArgumentError(f"{where}.sha256", "must be the SHA-256 of a token, 64 hexadecimal digits")
    return digest


def _roles(where: str, value: Any) -> frozenset[Role]:
    known = {role.value: role for role in Role}
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one in known for one in value):
        raise InvalidArgumentError(f"{where}.roles", f"must list some of {', '.join(known)}, not {shown(value)}")
    return frozenset(known[one] for one in value)


def _scopes(where: str, value: Any) -> frozenset[bytes] | None:
    if value == "*":
        return None
    try:
        scopes = frozenset(UUID(one).bytes for one in value) if isinstance(value, list) else frozenset()
    except (AttributeError, TypeError, ValueError):
        scopes = frozenset()
    if not scopes:
        raise InvalidArgumentError(f"{where}.scopes", f'must list UUIDs, or be "*", not {shown(value)}')
    return scopes
