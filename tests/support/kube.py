"""A real Kubernetes API server for tests: etcd and kube-apiserver on loopback ports, our kinds installed.

`ApiServer` runs the programs, `KubeClient` speaks to it and judges nothing: every call gives the
server's `Answer`, so that a refusal is compared like a success. There are no nodes and no controllers:
nothing schedules pods, and garbage is collected and namespaces end only while somebody is `collecting`.
Every test takes a namespace of its own.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self

import aiohttp
import yaml

from tests.support.ports import free_ports
from tools.kube import find

ROOT: Final = Path(__file__).resolve().parents[2]
CRDS: Final = ROOT / "deploy" / "crds"
TOKEN_SIGNER: Final = ROOT / "tests" / "data" / "tls" / "first"
"""Key and certificate, by their endings, that service accounts' tokens are signed and verified with."""
START_LIMIT_S: Final = 60.0
RESTART_LIMIT_S: Final = 180.0
"""Whoever restarts it has other programs at work beside it."""
CALL_LIMIT: Final = aiohttp.ClientTimeout(total=30)

Document = dict[str, Any]


class KubeError(Exception):
    """The server did not come up, or refused a call; the message ends with what it said last."""


class Administered(Protocol):
    """An API server that a test may do everything at."""

    folder: Path
    token: str

    @property
    def url(self) -> str: ...

    @property
    def ca(self) -> Path: ...

    @property
    def kubeconfig(self) -> Path: ...


class ApiServer:
    """One API server with its store in `folder`; RBAC is on, and `token` may do everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = secrets.token_urlsafe(16)
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def ca(self) -> Path:
        """What the server's certificate is verified with: the certificate itself."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """For other programs, as administrator."""
        return self.folder / "kubeconfig"

    def start(self) -> Self:
        """Start, wait until the server answers, and install our kinds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._run("etcd", self._etcd_flags())
        (self.folder / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        process = self._run("kube-apiserver", self._flags())
        self._await("/readyz", process)
        self.kubeconfig.write_text(yaml.safe_dump(self._config()))
        self._install_kinds(process)
        return self

    def stop(self) -> None:
        """Kill it: a graceful stop takes 15 s, and nothing is kept."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()

    def kill_api(self) -> None:
        """Kill the API server, as in a crash; its store stays."""
        process = self._processes.pop()
        process.kill()
        process.wait()

    def restart_api(self) -> None:
        """Start it again after `kill_api`, at the same address, and wait until it answers."""
        self._await("/readyz", self._run("kube-apiserver", self._flags()), RESTART_LIMIT_S)

    def pause_api(self) -> None:
        """Freeze the API server: connections stay open and nothing answers."""
        self._processes[-1].send_signal(signal.SIGSTOP)

    def resume_api(self) -> None:
        self._processes[-1].send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Meanwhile what is owned goes with its owner, and what is in a namespace with that.

        No other controller runs: tests set the statuses that those would write.
        """
        name = "kube-controller-manager"
        process = self._run(name, self._collector_flags())
        try:
            yield
        finally:
            ended = process.poll()
            process.kill()
            process.wait()
            self._processes.remove(process)
            if ended is not None:
                raise KubeError("\n".join([f"{name} ended with {ended}", *self._last_lines(name)]))

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _etcd_flags(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        ]

    def _flags(self) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--cert-dir={self.ca.parent}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={TOKEN_SIGNER}.crt",
            f"--service-account-signing-key-file={TOKEN_SIGNER}.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
        ]

    def _collector_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--controllers=namespace-controller,garbage-collector-controller",
            "--leader-elect=false",
            "--secure-port=0",
        ]

    def _config(self) -> Document:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}
            ],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }

    def _run(self, name: str, flags: Sequence[str]) -> subprocess.Popen[bytes]:
        program = find(name)
        if program is None:
            raise KubeError(f"no program {name}; run 'make kube-assets'")
        with self._log(name).open("ab") as log:
            process = subprocess.Popen((program, *flags), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._processes.append(process)
        return process

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _install_kinds(self, process: subprocess.Popen[bytes]) -> None:
        for manifest in sorted(CRDS.glob("*.yaml")):
            self._call("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", manifest.read_bytes())
        for manifest in sorted(CRDS.glob("*.yaml")):
            spec = yaml.safe_load(manifest.read_text())["spec"]
            version = spec["versions"][0]["name"]
            self._await(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", process)

    def _await(self, path: str, process: subprocess.Popen[bytes], within_s: float = START_LIMIT_S) -> None:
        deadline = time.monotonic() + within_s
        while process.poll() is None and time.monotonic() < deadline:
            try:
                self._call(path)
            except (OSError, KubeError):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.02)
            else:
                return
        found = "did not answer in time" if process.returncode is None else f"ended with {process.returncode}"
        raise KubeError("\n".join([f"kube-apiserver {found}: {path}", *self._last_lines("kube-apiserver")]))

    def _last_lines(self, name: str) -> list[str]:
        return self._log(name).read_text(errors="replace").splitlines()[-20:]

    def _call(self, path: str, manifest: bytes | None = None) -> None:
        """GET, or POST a manifest. Raises OSError while nobody listens, `KubeError` for a refusal."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/yaml"}
        request = urllib.request.Request(self.url + path, data=manifest, headers=headers)  # noqa: S310
        context = ssl.create_default_context(cafile=str(self.ca))
        try:
            with urllib.request.urlopen(request, timeout=5, context=context):  # noqa: S310
                pass
        except urllib.error.HTTPError as error:
            with error:
                raise KubeError(f"{path} answers {error.code}: {error.read().decode()}") from None


class Answer(NamedTuple):
    """What the server said: the object, a list, a table, or a `Status` with `message` and `details`."""

    status: int
    body: Document
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Why it refused; empty when it did not."""
        text: str = self.body.get("message", "") if self.body.get("kind") == "Status" else ""
        return text

    @property
    def causes(self) -> list[tuple[str, str, str]]:
        """Reason, path and message of each field that it refused.

        A cause about no field says that CEL rules were left alone meanwhile, and is left out.
        """
        causes = (self.body.get("details") or {}).get("causes") or ()
        found = [(cause.get("reason", ""), cause.get("field", ""), cause["message"]) for cause in causes]
        return [cause for cause in found if cause[1] != "<nil>"]


class Table(NamedTuple):
    """A listing: the server's definitions of its columns, and a row an object, cells by column."""

    columns: list[Document]
    rows: list[Document]


class KubeClient:
    """Speaks for one user, as kubectl would, about documents of any kind.

    `namespace` is for namespaced kinds; `strict` asks the server to refuse unknown fields, as kubectl
    does, instead of dropping them.
    """

    def __init__(self, server: Administered, token: str | None = None) -> None:
        self._server = server
        self._session = aiohttp.ClientSession(
            server.url,
            headers={"Authorization": f"Bearer {token or server.token}"},
            timeout=CALL_LIMIT,
            connector=aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(server.ca))),
        )
        self._places: dict[str, tuple[str, str, bool]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def create(self, document: Document, *, strict: bool = False, dry_run: bool = False) -> Answer:
        path = await self._path(document["kind"], _namespace_of(document))
        return await self.call("POST", path, document, query=_query(strict=strict, dry_run=dry_run))

    async def get(self, kind: str, name: str, namespace: str = "") -> Answer:
        return await self.call("GET", await self._path(kind, namespace, name))

    async def list_all(self, kind: str, namespace: str = "") -> Answer:
        """All objects of a namespace, or of all namespaces."""
        return await self.call("GET", await self._path(kind, namespace))

    async def table(self, kind: str, namespace: str = "") -> Table:
        """What `kubectl get` prints."""
        accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        answer = await self.call("GET", await self._path(kind, namespace), headers=accept)
        columns = answer.body["columnDefinitions"]
        names = [column["name"] for column in columns]
        rows = answer.body["rows"] or ()
        return Table(columns, [dict(zip(names, row["cells"], strict=True)) for row in rows])

    async def replace(
        self, document: Document, *, part: str = "", strict: bool = False, dry_run: bool = False
    ) -> Answer:
        """The object, or a `part` such as status; the document has the `resourceVersion` it replaces."""
        path = await self._path(document["kind"], _namespace_of(document), document["metadata"]["name"], part)
        return await self.call("PUT", path, document, query=_query(strict=strict, dry_run=dry_run))

    async def patch(
        self, kind: str, name: str, namespace: str, patch: Document | list[Document], *, part: str = ""
    ) -> Answer:
        """Merge a document into the object, or carry out the steps of a JSON patch; `part` may be status."""
        form = "application/json-patch+json" if isinstance(patch, list) else "application/merge-patch+json"
        path = await self._path(kind, namespace, name, part)
        return await self.call("PATCH", path, patch, headers={"Content-Type": form})

    async def apply(self, document: Document, *, manager: str, force: bool = False) -> Answer:
        """Server-side apply."""
        path = await self._path(document["kind"], _namespace_of(document), document["metadata"]["name"])
        query = {"fieldManager": manager, "force": str(force).lower()}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        return await self.call("PATCH", path, document, query=query, headers=headers)

    async def set_status(self, kind: str, name: str, namespace: str, status: Document) -> Answer:
        """Merge into the status, through its subresource."""
        return await self.patch(kind, name, namespace, {"status": status}, part="status")

    async def delete(self, kind: str, name: str, namespace: str = "") -> Answer:
        return await self.call("DELETE", await self._path(kind, namespace, name))

    async def call(
        self,
        method: str,
        path: str,
        document: object = None,
        *,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Any request; a document is sent as JSON."""
        data = None if document is None else json.dumps(document)
        sent = {"Content-Type": "application/json"} | (headers or {})
        async with self._session.request(method, path, data=data, params=query, headers=sent) as response:
            text = await response.text()
            body = json.loads(text) if response.content_type == "application/json" else {"text": text}
            return Answer(response.status, body, tuple(response.headers.getall("Warning", ())))

    async def _path(self, kind: str, namespace: str = "", name: str = "", part: str = "") -> str:
        if kind not in self._places:
            await self._discover()
        prefix, plural, is_namespaced = self._places[kind]
        middle = f"namespaces/{namespace}/" if is_namespaced and namespace else ""
        return "/".join(filter(None, (f"{prefix}/{middle}{plural}", name, part)))

    async def _discover(self) -> None:
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        for root in ("/apis", "/api"):  # the core group comes last and wins
            answer = await self.call("GET", root, headers={"Accept": accept})
            for group in answer.body["items"]:
                of_group = group.get("metadata", {}).get("name", "")
                for version in reversed(group["versions"]):  # the preferred one comes first
                    prefix = "/".join(filter(None, (root, of_group, version["version"])))
                    for resource in version["resources"]:
                        kind = resource["responseKind"]["kind"]
                        is_namespaced = resource["scope"] == "Namespaced"
                        self._places[kind] = (prefix, resource["resource"], is_namespaced)


async def service_account_token(admin: KubeClient, namespace: str, name: str) -> str:
    """A token of that service account, which is made if there is none: `KubeClient(server, token)` speaks
    for it. What it may do is up to the roles that are bound to it.
    """
    await admin.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
    )
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    answer = await admin.call(
        "POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    )
    assert answer.status == 201, answer
    token: str = answer.body["status"]["token"]
    return token


async def new_namespace(admin: KubeClient) -> str:
    """A namespace that nobody else uses."""
    answer = await admin.create(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
    )
    assert answer.status == 201, answer
    name: str = answer.body["metadata"]["name"]
    return name


def _namespace_of(document: Document) -> str:
    namespace: str = document["metadata"].get("namespace", "")
    return namespace


def _query(*, strict: bool, dry_run: bool) -> dict[str, str]:
    query = {"fieldValidation": "Strict" if strict else "Ignore"}
    return query | ({"dryRun": "All"} if dry_run else {})
