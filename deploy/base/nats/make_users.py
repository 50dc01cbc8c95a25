"""Makes the Secret of the NATS users' passwords where there is none: random, a key for each user.

Runs in a pod before the server, with nothing but Python's standard library. To change the passwords, delete
the Secret and restart all pods of the installation.
"""

import json
import os
import secrets
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

USERS = ("indexer", "router", "controller", "observer", "admin", "route")
NAME = "inference-cache-nats-users"
LIMIT_S = 10


def main() -> None:
    """Create it, or find it; any other answer of the API server ends the process with an error."""
    account = Path(sys.argv[1])
    namespace = (account / "namespace").read_text()
    labels = {"app.kubernetes.io/name": "inference-cache", "app.kubernetes.io/component": "nats"}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "labels": labels},
        # A value of the server's configuration that begins with a letter is never taken for a number.
        "stringData": {user: f"p{secrets.token_hex(24)}" for user in USERS},
    }
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    address = f"[{host}]" if ":" in host else host
    request = urllib.request.Request(
        f"https://{address}:{port}/api/v1/namespaces/{namespace}/secrets",
        data=json.dumps(secret).encode(),
        headers={
            "Authorization": f"Bearer {(account / 'token').read_text()}",
            "Content-Type": "application/json",
        },
    )
    trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
    try:
        urllib.request.urlopen(request, timeout=LIMIT_S, context=trust).close()  # noqa: S310 - it is https
    except urllib.error.HTTPError as error:
        if error.code != 409:  # there is one
            raise
        print(f"the Secret {NAME} is there")
    else:
        print(f"made the Secret {NAME}")


if __name__ == "__main__":
    main()
