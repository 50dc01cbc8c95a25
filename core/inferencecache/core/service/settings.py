"""Settings of a process: one flag each, the same name in the environment, and a help text that teaches.

`--nats-url` is also `INFERENCECACHE_NATS_URL`; the flag wins, then the environment, then the
default. A variable that is set but empty counts as not set. Whatever is wrong with a setting ends
the process with exit code 2 and a line that names flag, variable and what to write instead.
Passwords and tokens should come from the environment or from files, because a command line is
visible to every user of the machine.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import msgspec

ENVIRONMENT_PREFIX: Final = "INFERENCECACHE_"
_UNSET: Final = object()
_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")


def duration(text: str) -> float:
    """Seconds of `100ms`, `10s`, `1m30s`, `-1s` or `0`. Raises ValueError for anything else."""
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text.removeprefix("-")
    if rest == "0":
        return 0.0
    parts = _DURATION_PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError(f"{text!r} is not a duration; write a number with a unit, as in 100ms, 10s or 1m30s")
    total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not math.isfinite(total):
        raise ValueError("the duration has no end; write a number with a unit, as in 100ms, 10s or 1m30s")
    return sign * total


def listen_address(text: str) -> tuple[str, int] | None:
    """`:8080` is ("0.0.0.0", 8080), `[::1]:8080` is ("::1", 8080), empty is None: no listener.

    Port 0 lets the system choose one. Raises ValueError when there is no port or it is out of range.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in bare and bare == host):
        raise ValueError(f"{text!r} is not an address; write HOST:PORT or :PORT, as in :8080")
    return bare or "0.0.0.0", int(port)  # noqa: S104 - a service in a pod serves the pod's address


def at_least(minimum: int) -> Callable[[str], int]:
    """Parser of whole numbers that are not below `minimum`."""

    def parse(text: str) -> int:
        value = _whole_number(text)
        if value < minimum:
            raise ValueError(f"{value} is too small; the least is {minimum}")
        return value

    return parse


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _boolean(text: str) -> bool:
    match text.strip().lower():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
        case _:
            raise ValueError(f"{text!r} is neither true nor false")


_CLEAR_PARSERS: Final[Mapping[Any, Callable[[str], Any]]] = {
    int: _whole_number,
    float: _number,
    bool: _boolean,
}
"""The built-in types by parsers whose errors a person understands."""


class Setting(msgspec.Struct, frozen=True):
    """One flag with its variable, as a process declares it; `section` is the title above it in the help."""

    section: str
    flag: str
    variable: str
    name: str
    default: Any
    parse: Callable[[str], Any]
    required: bool
    example: str
    help: str
    choices: tuple[str, ...]

    @property
    def shown_default(self) -> str:
        """The default as people write it."""
        if isinstance(self.default, bool):
            return "true" if self.default else "false"
        return "none" if self.default in ("", None) else str(self.default)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Flag on one line, its meaning below: lines stay short however long a flag is."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=6, width=100)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return [line for part in text.splitlines() for line in textwrap.wrap(part, width)]


class SettingsParser(argparse.ArgumentParser):
    """Flags with environment variables. No abbreviations, no positional arguments; errors exit with 2.

    `name` is the program, `description` says what it is for; `environment` replaces the process's in tests.
    """

    def __init__(
        self, name: str, description: str, *, epilog: str = "", environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            prog=name,
            usage=f"{name} [--flag=value ...]   (--help lists every flag)",
            description=textwrap.fill(description, 98),
            epilog=epilog or None,
            allow_abbrev=False,
            formatter_class=_Help,
        )
        self.environment: Mapping[str, str] = os.environ if environment is None else environment
        self._settings: list[Setting] = []
        self._checks: list[Callable[[argparse.Namespace], None]] = []
        self._open_section = self.add_argument_group("settings")

    @property
    def settings(self) -> Sequence[Setting]:
        """What has been declared so far, in that order."""
        return tuple(self._settings)

    @contextmanager
    def section(self, title: str, description: str = "") -> Iterator[None]:
        """Settings added inside are listed together in the help."""
        before = self._open_section
        self._open_section = self.add_argument_group(title, description or None)
        yield
        self._open_section = before

    def setting(
        self,
        flag: str,
        *,
        default: Any,
        parse: Callable[[str], Any] = str,
        help: str,
        choices: Sequence[str] | None = None,
        required: bool = False,
        example: str = "",
    ) -> None:
        """Add one flag with its variable.

        A text default goes through `parse`, so that the help shows `10s` and not `10.0`. With
        `choices` only these texts are legal, exactly as written. `parse=bool` makes a switch that may
        stand bare. A required setting without a value ends the process with a line that shows `example`.
        """
        variable = ENVIRONMENT_PREFIX + flag.removeprefix("--").replace("-", "_").upper()
        convert = _checked(_CLEAR_PARSERS.get(parse, parse), choices)
        name = flag.removeprefix("--").replace("-", "_")
        section = self._open_section.title or ""
        setting = Setting(
            section, flag, variable, name, default, convert, required, example, help, tuple(choices or ())
        )
        self._settings.append(setting)
        if parse is bool:
            shape: dict[str, Any] = {"nargs": "?", "const": True, "metavar": "true|false"}
        else:
            shape = {"metavar": "|".join(choices) if choices else "VALUE"}
        shown = "required" if required else f"default: {setting.shown_default}"
        text = f"{help}\n[{shown}; environment: {variable}]".replace("%", "%%")
        self._open_section.add_argument(
            flag, dest=name, default=_UNSET, type=_argument_type(convert), help=text, **shape
        )

    def check(self, check: Callable[[argparse.Namespace], None]) -> None:
        """Run `check` on the finished settings; the text of a ValueError it raises becomes the refusal."""
        self._checks.append(check)

    def parse_args(  # type: ignore[override] # one signature for argparse's overloads
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        parsed: argparse.Namespace = super().parse_args(args, namespace)
        try:
            missing = [s for s in self._settings if not self._fill(s, parsed) and s.required]
            if not missing:
                for check in self._checks:
                    check(parsed)
        except ValueError as error:
            self.error(str(error))
        if missing:
            self.error("\n".join(_missing(setting) for setting in missing))
        return parsed

    def _fill(self, setting: Setting, parsed: argparse.Namespace) -> bool:
        """Put environment or default where no flag was given; is there a value now?"""
        if getattr(parsed, setting.name) is _UNSET:
            text = self.environment.get(setting.variable, "")
            setattr(parsed, setting.name, self._from_text(setting, text) if text else self._default(setting))
        return getattr(parsed, setting.name) not in ("", None)

    def _from_text(self, setting: Setting, text: str) -> Any:
        try:
            return setting.parse(text)
        except ValueError as error:
            raise ValueError(f"environment variable {setting.variable}: {error}") from error

    def _default(self, setting: Setting) -> Any:
        return setting.parse(setting.default) if isinstance(setting.default, str) else setting.default

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"usage: {self.usage}\n{self.prog}: error: {message}\n")


def _missing(setting: Setting) -> str:
    example = setting.example or "VALUE"
    return (
        f"{setting.flag} is required; pass {setting.flag}={example} or set the environment variable "
        f"{setting.variable}={example}"
    )


def _checked(parse: Callable[[str], Any], choices: Sequence[str] | None) -> Callable[[str], Any]:
    if choices is None:
        return parse

    def parse_choice(text: str) -> Any:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return parse(text)

    return parse_choice


def _argument_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Argparse shows the text of this error type and hides that of ValueError."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert


class NatsSettings(msgspec.Struct, frozen=True):
    """How to reach NATS. Secrets never appear in its representation; log `address`, not `url`.

    `creds_text` is the text of a credentials file, from the environment variable `NATS_CREDS` [SUB-177],
    or an NKey seed alone;
    `creds_file` wins over it. Paths are empty when not used.
    """

    url: str
    user: str = ""
    password: str = ""
    token: str = ""
    creds_file: str = ""
    creds_text: str = ""
    nkey_seed_file: str = ""
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    insecure: bool = False

    @property
    def servers(self) -> list[str]:
        """The addresses of `url`, which may list several with commas."""
        return [part.strip() for part in self.url.split(",") if part.strip()]

    @property
    def address(self) -> str:
        """`url` without user names, passwords and tokens."""
        return ",".join(_without_user(server) for server in self.servers)

    @property
    def has_credentials(self) -> bool:
        """Does anything here identify the process to the server?"""
        credentials = (self.user, self.token, self.creds_file, self.creds_text, self.nkey_seed_file)
        return any((*credentials, self.tls_cert_file)) or any("@" in server for server in self.servers)

    def __repr__(self) -> str:
        return f"NatsSettings(address={self.address!r}, has_credentials={self.has_credentials})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("address", self.address), ("has_credentials", self.has_credentials)]


def _without_user(server: str) -> str:
    scheme, separator, rest = server.rpartition("://")
    return scheme + separator + rest.rpartition("@")[2]


_CREDENTIALS: Final = ("--nats-creds-file", "--nats-nkey-seed-file", "--nats-token", "--nats-user")
_FILES: Final = (
    "--nats-creds-file",
    "--nats-nkey-seed-file",
    "--nats-tls-ca-file",
    "--nats-tls-cert-file",
    "--nats-tls-key-file",
)


def add_nats_settings(parser: SettingsParser, *, required: bool, default_url: str = "") -> None:
    """Add the settings that `nats_settings` reads.

    With `required` the process refuses to start without an address (unless `default_url` is given),
    without credentials (unless `--insecure-nats` accepts that), and with a file that cannot be read.
    Without it the process starts in any case and finds out at the server: a sidecar must never keep
    its engine's pod from becoming ready.
    """
    with parser.section("NATS", "The log and everything derived from it live in NATS JetStream."):
        parser.setting(
            "--nats-url",
            default=default_url,
            parse=nats_url,
            required=required and not default_url,
            example="nats://127.0.0.1:4222",
            help="Address of the NATS servers, several with commas: nats://HOST:PORT or tls://HOST:PORT.",
        )
        parser.setting(
            "--insecure-nats",
            default=False,
            parse=bool,
            help="Accept a NATS server without authentication: only where nobody else can reach it.",
        )
        parser.setting(
            "--nats-creds-file",
            default="",
            help="NATS credentials file of this process. The variable NATS_CREDS may hold its text instead, "
            "or an NKey seed.",
        )
        parser.setting("--nats-user", default="", help="User name, with --nats-password.")
        parser.setting("--nats-password", default="", help="Password; better set by its variable.")
        parser.setting("--nats-token", default="", help="Token; better set by its variable.")
        parser.setting("--nats-nkey-seed-file", default="", help="File with an NKey seed.")
        parser.setting("--nats-tls-ca-file", default="", help="PEM certificates that sign the server's.")
        parser.setting("--nats-tls-cert-file", default="", help="PEM client certificate, for mutual TLS.")
        parser.setting("--nats-tls-key-file", default="", help="PEM private key of --nats-tls-cert-file.")
    credentials_text = parser.environment.get("NATS_CREDS", "")
    parser.set_defaults(nats_creds_text=credentials_text)
    parser.check(_check_combination)
    if required:
        parser.check(_check_complete)


def nats_settings(args: argparse.Namespace) -> NatsSettings:
    """The settings of `add_nats_settings`."""
    return NatsSettings(
        url=args.nats_url,
        user=args.nats_user,
        password=args.nats_password,
        token=args.nats_token,
        creds_file=args.nats_creds_file,
        creds_text=args.nats_creds_text,
        nkey_seed_file=args.nats_nkey_seed_file,
        tls_ca_file=args.nats_tls_ca_file,
        tls_cert_file=args.nats_tls_cert_file,
        tls_key_file=args.nats_tls_key_file,
        insecure=args.insecure_nats,
    )


def nats_url(text: str) -> str:
    """Addresses of NATS servers with commas, or none, as they stand. Raises ValueError otherwise."""
    for server in filter(None, (part.strip() for part in text.split(","))):
        parts = urlsplit(server if "://" in server else f"nats://{server}")
        if parts.scheme not in ("nats", "tls", "ws", "wss") or not parts.hostname:
            raise ValueError("not an address of NATS servers; write nats://HOST:PORT, several with commas")
    return text


def _check_combination(args: argparse.Namespace) -> None:
    given = [flag for flag in _CREDENTIALS if _value(args, flag)]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} exclude each other; keep one kind of credentials")
    if bool(args.nats_user) != bool(args.nats_password):
        raise ValueError("--nats-user and --nats-password must both be set or both be empty")
    if bool(args.nats_tls_cert_file) != bool(args.nats_tls_key_file):
        raise ValueError("--nats-tls-cert-file and --nats-tls-key-file must both be set or both be empty")


def _check_complete(args: argparse.Namespace) -> None:
    for flag in _FILES:
        path = _value(args, flag)
        if path and not os.access(Path(path), os.R_OK):
            raise ValueError(f"{flag}: the file {path} does not exist or cannot be read")
    if not args.insecure_nats and not nats_settings(args).has_credentials:
        raise ValueError(
            "no credentials for NATS; pass --nats-creds-file=FILE or set the environment variable "
            f"{ENVIRONMENT_PREFIX}NATS_CREDS_FILE (--help lists the other kinds), or accept a server without "
            f"authentication with --insecure-nats or {ENVIRONMENT_PREFIX}INSECURE_NATS=true"
        )


def _log_format(text: str) -> str:
    return _word(text, {"": "json", "json": "json", "text": "text"})


def _log_level(text: str) -> str:
    levels = {"": "info", "warning": "warn"} | {level: level for level in ("debug", "info", "warn", "error")}
    return _word(text, levels)


def _word(text: str, meanings: Mapping[str, str]) -> str:
    word = text.strip().lower()
    if word not in meanings:
        raise ValueError(f"{text!r} is none of {', '.join(filter(None, meanings))}")
    return meanings[word]


def _value(args: argparse.Namespace, flag: str) -> str:
    value: str = getattr(args, flag.removeprefix("--").replace("-", "_"))
    return value


def add_log_settings(parser: SettingsParser) -> None:
    """Add `--log-format` and `--log-level`: case and surrounding blanks do not matter [WIRE-197]."""
    with parser.section("logs", "Logs go to standard error."):
        parser.setting(
            "--log-format",
            default="json",
            parse=_log_format,
            help="json: one object a line; text: for people.",
        )
        parser.setting(
            "--log-level",
            default="info",
            parse=_log_level,
            help="debug, info, warn (or warning) or error.",
        )
