"""A whole Kubernetes of one node, in namespaces of its own: pods run, Services route, names resolve.

Control plane, container runtime, kubelet, kube-proxy, DNS and cert-manager are processes of one network,
mount and process namespace; what they leave behind goes with its first process. A pair of interfaces connects
it with this machine, so that tests reach pods and Services by their addresses and nothing else does.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from tests.cluster.holding import BRIDGE, GROUPS, READY
from tests.support.kube import TOKEN_SIGNER
from tools import cluster
from tools.kube import find

NODE: Final = "node-1"
GATEWAY: Final = "10.88.0.1"
"""The node's address: of its bridge, its API server, its kubelet and its DNS."""
PODS: Final = "10.88.0.0/24"
SERVICES: Final = "10.96.0.0/24"
DOMAIN: Final = "cluster.local"
_LINK: Final = "ic-cluster"
_LINK_HERE: Final = "10.88.1.1/30"
_LINK_THERE: Final = "10.88.1.2/30"
_PORT: Final = 6443
_ETCD: Final = "http://127.0.0.1:2379"
_START_LIMIT_S: Final = 300.0
_CALL_LIMIT_S: Final = 10.0
_END_LIMIT_S: Final = 60.0
_LOG_LINES: Final = 3
_KERNEL: Final = Path("/proc/sys")
_CHANGED_BY_KUBELET: Final = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)
"""Settings of the whole machine, which are as before afterwards."""


class NodeError(Exception):
    """A program of the node does not run; the message ends with what it said last."""


class OneNode:
    """Up inside `with`. Settings and logs are in `folder`, images and state in memory. `token` may do
    everything.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = secrets.token_urlsafe(16)
        self.audit_log = folder / "audit.log"
        """A line of JSON for each answered request that deletes a pod or changes a policy."""
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._holder: subprocess.Popen[bytes] | None = None
        self._inside: tuple[str, ...] = ()
        self._kernel: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"https://{GATEWAY}:{_PORT}"

    @property
    def ca(self) -> Path:
        """What the API server's certificate is verified with: the certificate itself."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def kubeconfig(self) -> Path:
        """For other programs, as administrator."""
        return self.folder / "kubeconfig"

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End everything at once; nothing is kept but logs."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()
            self._holder = None
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        for name, value in self._kernel.items():
            (_KERNEL / name).write_text(value)
        if not _removed_cgroups(self._cgroup):
            raise NodeError(f"control groups {self._cgroup} are still in use")

    def import_archive(self, archive: Path) -> None:
        """Bring in the images of a file that `docker save` wrote."""
        self._ctr("images", "import", str(archive))

    def import_images(self, names: Sequence[str], environment: Mapping[str, str]) -> None:
        """Bring in images of the Docker engine."""
        with subprocess.Popen(
            ("docker", "save", *names), stdout=subprocess.PIPE, env=dict(environment)
        ) as saving:
            self._ctr("images", "import", "-", given=saving.stdout)
        assert saving.returncode == 0

    def pinned(self, image: str) -> str:
        """The name by digest of an image that is in, under which it is there from now on."""
        listed = self._ctr("images", "ls", f"name=={image}").splitlines()
        digest = listed[1].split()[2]
        name = f"{image.rpartition(':')[0]}@{digest}"
        self._ctr("images", "tag", "--force", image, name)
        return name

    def working_set(self, container: str) -> int:
        """Bytes that a container needs, as kubelets count them: without what is easily read again.

        `container` is its id at the runtime, as a pod's status has it.
        """
        (group,) = (GROUPS / "memory").rglob(container.removeprefix("containerd://"))
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used = int((group / "memory.usage_in_bytes").read_text())
        return used - int(statistics["total_inactive_file"])

    def logs(self) -> str:
        """The last lines of every program, for a failure's report."""
        return "\n".join(line for name in self._processes for line in self._last_lines(name))

    def check(self) -> None:
        """Raises `NodeError` when one of the programs has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                lines = [f"{name} ended with {process.returncode}", *self._last_lines(name)]
                raise NodeError("\n".join(lines))

    def settle(self, path: str, *, within_s: float = _START_LIMIT_S) -> None:
        """Wait until the API server answers a GET of that path well. Raises `NodeError`."""
        deadline = time.monotonic() + within_s
        while True:
            self.check()
            try:
                self._call(path)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise NodeError(f"{path}: {error}\n{self.logs()}") from error
                self._wait_a_moment()
            else:
                return

    # -- starting ------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._kernel = {name: (_KERNEL / name).read_text() for name in _CHANGED_BY_KUBELET}
        self._hold()
        self._connect()
        self._write_configurations()
        self._run("containerd", "containerd", "--config", str(self.folder / "containerd.toml"))
        self._run("etcd", str(_program("etcd")), *self._etcd_flags())
        self._run("kube-apiserver", str(_program("kube-apiserver")), *self._api_flags())
        self._write_kubeconfig()
        self.settle("/readyz")
        self._import_sandbox()
        for name, flags in (
            ("kube-controller-manager", self._manager_flags()),
            ("kube-scheduler", self._scheduler_flags()),
            ("kubelet", self._kubelet_flags()),
            ("kube-proxy", [f"--config={self.folder / 'kube-proxy.yaml'}"]),
            ("coredns", [f"-conf={self.folder / 'Corefile'}"]),
        ):
            self._run(name, str(_program(name)), *flags)
        self.settle(f"/api/v1/nodes/{NODE}")
        self.settle("/api/v1/namespaces/default/serviceaccounts/default")

    def start_cert_manager(self) -> None:
        """Its kinds are there by now."""
        self._run(
            "cert-manager-controller",
            str(_program("cert-manager-controller")),
            *(f"--kubeconfig={self.kubeconfig}", "--leader-elect=false"),
            *("--metrics-listen-address=127.0.0.1:0", "--cluster-resource-namespace=kube-system"),
        )
        self._run(
            "cert-manager-cainjector",
            str(_program("cert-manager-cainjector")),
            *(f"--kubeconfig={self.kubeconfig}", "--leader-elect=false"),
        )

    def _hold(self) -> None:
        """Make the namespaces, with a process that holds them."""
        holding = Path(__file__).with_name("holding.py")
        command = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        prefix = PODS.partition("/")[2]
        with (self.folder / "holding.log").open("wb") as log:
            self._holder = subprocess.Popen(
                (*command, sys.executable, str(holding), f"{GATEWAY}/{prefix}", self._cgroup),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline().decode() != READY:
            raise NodeError((self.folder / "holding.log").read_text())
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text()
        first = children.split()[0]
        self._inside = ("nsenter", f"--target={first}", "--net", "--mount", "--pid")
        self._first = first

    def _connect(self) -> None:
        """This machine reaches pods and Services by a pair of interfaces, which goes with the namespace."""
        here, there = _LINK_HERE, _LINK_THERE
        _do("ip", "link", "add", _LINK, "type", "veth", "peer", "name", "outside", "netns", self._first)
        _do("ip", "address", "add", here, "dev", _LINK)
        _do("ip", "link", "set", _LINK, "up")
        _do(*self._inside, "ip", "address", "add", there, "dev", "outside")
        _do(*self._inside, "ip", "link", "set", "outside", "up")
        # Processes of the node reach Services too: an address is translated only once there is a way to it.
        _do(*self._inside, "ip", "route", "add", SERVICES, "dev", BRIDGE)
        for network in (PODS, SERVICES):
            _do("ip", "route", "add", network, "via", there.partition("/")[0], "dev", _LINK)

    def _import_sandbox(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while not (self.folder / "containerd.sock").exists():
            self.check()
            if time.monotonic() > deadline:
                raise NodeError(self.logs())
            self._wait_a_moment()
        self.import_archive(cluster.archive(cluster.SANDBOX_IMAGE))

    def _run(self, name: str, *command: str) -> None:
        own = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                (*self._inside, *command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=own
            )

    def _wait_a_moment(self) -> None:
        assert self._holder is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._holder.wait(0.05)

    def _ctr(self, *arguments: str, given: Any = None) -> str:
        command = ("ctr", f"--address={self.folder / 'containerd.sock'}", "--namespace=k8s.io", *arguments)
        return _do(*command, given=given)

    def _call(self, path: str) -> None:
        """Raises OSError, an HTTPError included."""
        request = urllib.request.Request(  # noqa: S310 - it is https
            self.url + path, headers={"Authorization": f"Bearer {self.token}"}
        )
        if not self.ca.exists():
            raise FileNotFoundError(self.ca)
        context = ssl.create_default_context(cafile=str(self.ca))
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            with opener.open(request, timeout=_CALL_LIMIT_S):
                pass
        except urllib.error.HTTPError as error:
            error.close()
            raise

    def _last_lines(self, name: str) -> list[str]:
        lines = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
        return [f"{name}: {line}" for line in lines[-_LOG_LINES:]]

    # -- settings of the programs --------------------------------------------------------------------

    @property
    def _cgroup(self) -> str:
        """The group of everything that runs here, in every hierarchy."""
        return f"inference-cache-{os.getpid()}"

    def _etcd_flags(self) -> list[str]:
        return [
            "--data-dir=/var/lib/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={_ETCD}",
            f"--advertise-client-urls={_ETCD}",
        ]

    def _api_flags(self) -> list[str]:
        return [
            f"--etcd-servers={_ETCD}",
            f"--cert-dir={self.ca.parent}",
            f"--bind-address={GATEWAY}",
            f"--advertise-address={GATEWAY}",
            f"--secure-port={_PORT}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={TOKEN_SIGNER}.crt",
            f"--service-account-signing-key-file={TOKEN_SIGNER}.key",
            f"--service-cluster-ip-range={SERVICES}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--audit-policy-file={self.folder / 'audit.yaml'}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking",
        ]

    def _manager_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / 'kube-controller-manager'}",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={TOKEN_SIGNER}.key",
            f"--root-ca-file={self.ca}",
        ]

    def _scheduler_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder / 'kube-scheduler'}",
            "--leader-elect=false",
        ]

    def _kubelet_flags(self) -> list[str]:
        return [
            f"--config={self.folder / 'kubelet.yaml'}",
            f"--kubeconfig={self.kubeconfig}",
            "--root-dir=/var/lib/kubelet",
            "--cert-dir=/var/lib/kubelet/pki",
            f"--hostname-override={NODE}",
            f"--node-ip={GATEWAY}",
        ]

    def _write_kubeconfig(self) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}
            ],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(yaml.safe_dump(document))

    def _write_configurations(self) -> None:
        (self.folder / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        (self.folder / "cni").mkdir()
        (self.folder / "cni" / "10-bridge.conflist").write_text(json.dumps(self._network()))
        (self.folder / "containerd.toml").write_text(self._runtime())
        (self.folder / "Corefile").write_text(
            f".:53 {{\n  bind {GATEWAY}\n  errors\n"
            f"  kubernetes {DOMAIN} {{\n    kubeconfig {self.kubeconfig} test\n    ttl 1\n  }}\n}}\n"
        )
        for name, document in (
            ("kubelet", self._kubelet()),
            ("kube-proxy", self._proxy()),
            ("audit", _AUDIT),
        ):
            (self.folder / f"{name}.yaml").write_text(yaml.safe_dump(document))

    def _network(self) -> dict[str, Any]:
        addresses = {
            "type": "host-local",
            "dataDir": "/run/cni-addresses",
            "ranges": [[{"subnet": PODS, "gateway": GATEWAY}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True}
        return {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                bridge | {"ipam": addresses},
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }

    def _runtime(self) -> str:
        """Without the right to lower OOM scores runc dies, hence `restrict_oom_score_adj`."""
        folder = self.folder
        return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{cluster.SANDBOX_IMAGE}"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cluster.CNI_PROGRAMS}"
conf_dir = "{folder}/cni"
"""

    def _kubelet(self) -> dict[str, Any]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": GATEWAY,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "clusterDNS": [GATEWAY],
            "clusterDomain": DOMAIN,
            "containerRuntimeEndpoint": f"unix://{self.folder / 'containerd.sock'}",
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "50Mi"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "healthzPort": 0,
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "resolvConf": "",
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        }

    def _proxy(self) -> dict[str, Any]:
        kept = {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"}
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "bindAddress": GATEWAY,
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "clusterCIDR": PODS,
            "conntrack": kept,
            "hostnameOverride": NODE,
            "mode": "iptables",
        }


_AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["delete"], "resources": [{"group": "", "resources": ["pods"]}]},
        {
            "level": "Metadata",
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "inferencecache.io", "resources": ["cachepolicies"]}],
        },
        {"level": "None"},
    ],
}


def _program(name: str) -> Path:
    found = find(name)
    if found is None:
        raise NodeError(f"no program {name}; run 'make cluster-assets'")
    return found


def _do(*command: str, given: Any = None) -> str:
    """What a program says. Raises `NodeError` with what it complains of."""
    ended = subprocess.run(command, stdin=given, capture_output=True, text=True, timeout=600, check=False)
    if ended.returncode != 0:
        raise NodeError(f"{' '.join(command)}: {ended.stderr}")
    return ended.stdout


def _removed_cgroups(parent: str) -> bool:
    """Remove the groups of what has ended, once the last of it has: could they be?"""
    deadline = time.monotonic() + _END_LIMIT_S
    pause = threading.Event()
    while groups := [each for group in GROUPS.rglob(parent) for each in group.glob("**/")]:
        for group in sorted(groups, key=lambda path: -len(path.parts)):
            with contextlib.suppress(OSError):
                group.rmdir()
        if time.monotonic() > deadline:
            return False
        pause.wait(0.02)
    return True
