"""Credentials from the environment, as the command `agentloop` reads them."""

import os
from pathlib import Path


def credentials_of_environment() -> dict:
    """Keyword arguments of `Host`: AGENTLOOP_CA_FILE, _CERT_FILE, _KEY_FILE and AGENTLOOP_TOKEN, as far as they are set."""
    files = {"ca": "AGENTLOOP_CA_FILE", "certificate": "AGENTLOOP_CERT_FILE", "key": "AGENTLOOP_KEY_FILE"}
    found = {name: Path(path).read_bytes() for name, variable in files.items() if (path := os.environ.get(variable))}
    if token := os.environ.get("AGENTLOOP_TOKEN"):
        found["token"] = token
    return found
