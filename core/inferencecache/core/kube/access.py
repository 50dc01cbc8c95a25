"""Where the Kubernetes API is and who we are there."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from inferencecache.core.kube.backends import section, text
from inferencecache.core.kube.programs import credentials_of

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ClusterAccessError(Exception):
    """There is no usable way to the API. The message names the setting to change."""


class ClusterAccess(msgspec.Struct, frozen=True):
    """Address and credentials. A token file is read before each request, since tokens are renewed in it."""

    server: str
    tls: ssl.SSLContext | None
    token: str = ""
    token_file: Path | None = None

    def __repr__(self) -> str:
        return f"ClusterAccess(server={self.server!r})"

    @property
    def headers(self) -> dict[str, str]:
        """What identifies us. Raises OSError when the token file cannot be read."""
        token = self.token if self.token_file is None else self.token_file.read_text().strip()
        return {"Authorization": f"Bearer {token}"} if token else {}


def find_kubeconfig(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The file that kubectl would read: the first of `KUBECONFIG` that is there, or `~/.kube/config`."""
    listed = [Path(each) for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    home = environment.get("HOME", "")
    candidates = listed or ([Path(home) / ".kube" / "config"] if home else [])
    return next((path for path in candidates if path.is_file()), None)


def is_in_cluster(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in a pod."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST"))


def access_to_cluster(
    kubeconfig: Path | None,
    environment: Mapping[str, str] = os.environ,
    *,
    context: str = "",
    with_programs: bool = False,
) -> ClusterAccess:
    """By a context of the kubeconfig file, by default its current one, or without a file as the service
    account of the pod this process runs in. Programs that give credentials are run only `with_programs`.

    Raises `ClusterAccessError`.
    """
    try:
        if kubeconfig is None:
            return _by_account(environment)
        return _by_file(kubeconfig, context, with_programs=with_programs)
    except (OSError, ValueError, yaml.YAMLError) as error:
        where = "the pod's service account" if kubeconfig is None else f"--kubeconfig={kubeconfig}"
        raise ClusterAccessError(f"{where}: {error}") from error


def _by_account(environment: Mapping[str, str]) -> ClusterAccess:
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not port:
        raise ClusterAccessError("this process runs in no pod of a cluster; pass --kubeconfig=FILE")
    for file in ("ca.crt", "token"):
        if not (_ACCOUNT / file).is_file():
            problem = f"there is no {_ACCOUNT / file}; set automountServiceAccountToken of the pod to true"
            raise ClusterAccessError(f"{problem}, or pass --kubeconfig=FILE")
    tls = ssl.create_default_context(cafile=_ACCOUNT / "ca.crt")
    shown = f"[{host}]" if ":" in host else host
    return ClusterAccess(f"https://{shown}:{port}", tls, token_file=_ACCOUNT / "token")


def _by_file(path: Path, name: str, *, with_programs: bool) -> ClusterAccess:
    config = section(yaml.safe_load(path.read_text())) or {}
    context = _named(config, "context", name or text(config, "current-context"))
    cluster = _named(config, "cluster", text(context, "cluster"))
    user = _named(config, "user", text(context, "user"))
    server = text(cluster, "server").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ValueError("the cluster of the current context needs a server, as in https://10.0.0.1:6443")
    program = section(user, "exec")
    if program is not None and with_programs:
        user = {key: value for key, value in user.items() if key != "exec"} | _given(path.parent, program)
    if unsupported := user.keys() & {"exec", "auth-provider", "username", "as"}:
        raise ValueError(f"credentials by {min(unsupported)} are not supported; give a token or certificate")
    if unsupported := cluster.keys() & {"proxy-url", "tls-server-name"}:
        raise ValueError(f"{min(unsupported)} of the cluster is not supported; leave it out")
    token_file = text(user, "tokenFile")
    return ClusterAccess(
        server,
        _tls_of(path.parent, cluster, user) if server.startswith("https://") else None,
        token=text(user, "token").strip(),
        token_file=path.parent / token_file if token_file else None,
    )


def _given(folder: Path, program: dict[str, Any]) -> dict[str, str]:
    """What a program gives, in the fields of a user that are data."""
    given = credentials_of(folder, program)
    data = {
        f"client-{field}-data": base64.b64encode(given[field].encode()).decode()
        for field in ("certificate", "key")
        if given[field]
    }
    return {"token": given["token"]} | data


def _tls_of(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> ssl.SSLContext:
    authority = _content(folder, cluster, "certificate-authority")
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify") is True:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    certificate, key = (_content(folder, user, field) for field in ("client-certificate", "client-key"))
    if certificate and key:
        with tempfile.NamedTemporaryFile() as pair:  # the one form in which the library takes them
            pair.write(certificate + b"\n" + key)
            pair.flush()
            tls.load_cert_chain(pair.name)
    return tls


def _named(config: dict[str, Any], what: str, name: str) -> dict[str, Any]:
    entries = config.get(f"{what}s")
    for entry in entries if isinstance(entries, list) else ():
        if text(section(entry), "name") == name and (found := section(entry, what)) is not None:
            return found
    if what == "context" and not name:
        raise ValueError("it has no current-context; choose one with kubectl config use-context")
    raise ValueError(f"it has no {what} {name!r}")


def _content(folder: Path, holder: dict[str, Any], field: str) -> bytes:
    """A field that is a path, relative to the file, or stands as data beside it."""
    if data := text(holder, f"{field}-data"):
        return base64.b64decode(data)
    path = text(holder, field)
    return (folder / path).read_bytes() if path else b""
