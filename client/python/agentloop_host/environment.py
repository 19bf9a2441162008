"""Credentials from the environment, as the command `agentloop` reads them."""

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from .transport import address_of


def credentials_of_environment(server: str) -> dict:
    """Keyword arguments of `Host`: AGENTLOOP_CA_FILE, _CERT_FILE, _KEY_FILE and AGENTLOOP_TOKEN, as far as they are set.

    Exits where a file cannot be read, and where the token would travel unencrypted to another machine, unless
    AGENTLOOP_ALLOW_INSECURE_REMOTE is `true`.
    """
    files = {"ca": "AGENTLOOP_CA_FILE", "certificate": "AGENTLOOP_CERT_FILE", "key": "AGENTLOOP_KEY_FILE"}
    try:
        found = {name: Path(path).read_bytes() for name, variable in files.items() if (path := os.environ.get(variable))}
    except OSError as error:
        raise SystemExit(f"cannot read {error.filename}: {error.strerror}") from None
    if token := os.environ.get("AGENTLOOP_TOKEN"):
        allowed = os.environ.get("AGENTLOOP_ALLOW_INSECURE_REMOTE") == "true"
        if not allowed and not keeps_secret(server):
            raise SystemExit(
                f"the token would travel unencrypted to {server}: use https://, or set "
                "AGENTLOOP_ALLOW_INSECURE_REMOTE=true if the network between is trusted"
            )
        found["token"] = token
    return found


def keeps_secret(server: str) -> bool:
    """True if nobody on the way reads along: the address is https://, or of this machine."""
    address, encrypted = address_of(server)
    if encrypted:
        return True
    host = urlsplit(f"//{address}").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
