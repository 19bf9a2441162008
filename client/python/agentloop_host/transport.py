"""The way to the server: its address, and the credentials that the address asks for."""

from urllib.parse import urlsplit

import grpc

SCHEMES = {"https": True, "http": False}  # true where the connection is encrypted


def address_of(server: str) -> tuple[str, bool]:
    """The address without its scheme, and whether it is to be encrypted. Raises ValueError where it is no address."""
    scheme, separator, address = server.partition("://")
    if not separator:
        scheme, address = "http", server
    address = address.removesuffix("/")
    encrypted = SCHEMES.get(scheme.lower())
    if encrypted is None or not _is_host_with_port(address):
        raise ValueError(f"{server!r} is no address of a server: write host:port, or https:// before it")
    return address, encrypted


def _is_host_with_port(address: str) -> bool:
    """True for a host with or without a port: no path, no user, no space."""
    try:
        parts = urlsplit(f"//{address}")
        return bool(parts.hostname) and parts.port != 0 and parts.netloc == address and not set(address) & set("@ \t\r\n")
    except ValueError:  # the port is no number, or a bracket is missing
        return False


def credentials_of(
    encrypted: bool, ca: bytes | None, certificate: bytes | None, key: bytes | None
) -> grpc.ChannelCredentials | None:
    """Credentials of these certificates, for an encrypted connection. Raises ValueError where they do not fit together."""
    if not encrypted:
        if ca is not None or certificate is not None or key is not None:
            raise ValueError("certificates need an address that begins with https://")
        return None
    if (certificate is None) != (key is None):
        missing = "key" if key is None else "certificate"
        raise ValueError(f"certificate and key belong together: {missing} is missing")
    # gRPC would find such a mistake at each handshake alone, and not say which of the files has it.
    for name, pem, mark in [
        ("ca", ca, b"CERTIFICATE-----"),
        ("certificate", certificate, b"CERTIFICATE-----"),
        ("key", key, b"PRIVATE KEY-----"),
    ]:
        if pem is not None and mark not in pem:
            raise ValueError(f"{name} has no {'private key' if name == 'key' else 'certificate'} in PEM")
    return grpc.ssl_channel_credentials(ca, key, certificate)


def metadata_of(token: str | None) -> tuple[tuple[str, str], ...]:
    """The metadata that presents the bearer token. Raises ValueError where no header can carry it."""
    if not token:
        return ()
    if not all(" " <= character <= "~" for character in token):
        raise ValueError("the token has characters that a header cannot carry")
    return (("authorization", f"Bearer {token}"),)
