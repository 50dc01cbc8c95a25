"""Credentials by a program that the kubeconfig names, as clouds have them: `exec` of a user.

They are asked for once and grow old, so this is for commands that people run and not for what runs on.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from inferencecache.core.kube.backends import section, text
from inferencecache.schemas.unreadable import UNREADABLE

LIMIT_S: Final = 30.0


class _Given(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _Credential(msgspec.Struct):
    status: _Given


def credentials_of(folder: Path, program: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a user, as if they stood in the file: a token, or a certificate with its key in PEM.

    Raises ValueError with what to mend.
    """
    name = text(program, "command")
    found = shutil.which(name if os.sep not in name else str(folder / name))
    if found is None:
        hint = text(program, "installHint")
        raise ValueError(f"its program {name!r} is not installed" + (f"; {hint}" if hint else ""))
    arguments = [str(each) for each in program.get("args") or ()]
    listed = [section(each) for each in program.get("env") or ()]
    variables = {text(each, "name"): text(each, "value") for each in listed}
    version = text(program, "apiVersion")
    asked = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    told = {"KUBERNETES_EXEC_INFO": msgspec.json.encode(asked).decode()}
    try:
        done = subprocess.run(  # noqa: S603 - the file is the user's own, and says what to run
            [found, *arguments],
            env=os.environ | variables | told,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=LIMIT_S,
            check=True,
        )
        given = msgspec.json.decode(done.stdout, type=_Credential).status
    except subprocess.SubprocessError as error:
        raise ValueError(f"its program {name!r} gives no credentials: {_reason(error)}") from None
    except UNREADABLE:
        raise ValueError(f"what its program {name!r} gives are no credentials") from None
    return {
        "token": given.token,
        "certificate": given.client_certificate_data,
        "key": given.client_key_data,
    }


def _reason(error: subprocess.SubprocessError) -> str:
    """Without its output, which may be a secret."""
    match error:
        case subprocess.TimeoutExpired():
            return f"no answer within {LIMIT_S:g} s"
        case subprocess.CalledProcessError():
            return f"it ends with {error.returncode}"
    return type(error).__name__
