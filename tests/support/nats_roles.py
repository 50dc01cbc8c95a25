"""The users of the shipped NATS configuration, as the manifests have them, for a test's own server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from inferencecache.core.service import NatsSettings

BASE: Final = Path(__file__).resolve().parents[2] / "deploy" / "base" / "nats"
STRICT: Final = BASE.parents[1] / "overlays" / "strict"
USERS: Final = ("indexer", "router", "controller", "observer", "admin")
_INCLUDED: Final = re.compile(r'include "([^"]+)"')
_EXAMPLE: Final = re.compile(r"^( *)#(?=TEAM_A|  publish|  subscribe|}| { nkey)", re.MULTILINE)


def authorization() -> str:
    """What gives a server the shipped users."""
    return _authorization((BASE / "users.conf").read_text()) + (BASE / "open.conf").read_text()


def strict_authorization(tenant: str, nkey: str) -> str:
    """What gives it those of the overlay `strict`, with its example filled in for a tenant."""
    text = (STRICT / "users.conf").read_text().replace("team-a", tenant).replace("U…", nkey)
    return _authorization(_EXAMPLE.sub(r"\1", text))


def password(user: str) -> str:
    return f"of-the-{user}"


def as_user(url: str, user: str) -> NatsSettings:
    return NatsSettings(url, user=user, password=password(user))


def _authorization(users: str) -> str:
    """The server's own file is elsewhere, so what is included is put in its place."""
    text = _INCLUDED.sub(lambda match: (BASE / match[1]).read_text(), users)
    known = "\n".join(f'{user.upper()}_PASSWORD: "{password(user)}"' for user in USERS)
    return f"{known}\nauthorization {{\n{text}\n}}\n"
