"""What TLS needs and what is wrong with it: contexts that always verify, and failures in words (A-49, BH-038).

There is no way to switch verification off: no key, no flag, no variable.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Final

# OpenSSL's verify codes and reasons, as kinds of failure.
VERIFY: Final = {
    9: "not_yet_valid", 10: "expired", 18: "unknown_ca", 19: "unknown_ca", 20: "unknown_ca", 21: "unknown_ca",
    62: "host_name", 64: "host_name",
}  # fmt: skip
REASONS: Final = {
    "WRONG_VERSION_NUMBER": "plain_http",
    "HTTP_REQUEST": "plain_http",
    "PACKET_LENGTH_TOO_LONG": "plain_http",
    "RECORD_LAYER_FAILURE": "plain_http",
    "UNSUPPORTED_PROTOCOL": "old_protocol",
    "TLSV1_ALERT_PROTOCOL_VERSION": "old_protocol",
    "NO_PROTOCOLS_AVAILABLE": "old_protocol",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "client_certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "client_certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "client_certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "client_certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "client_certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "client_certificate",
}
SENTENCES: Final = {
    "expired": "the server's certificate has expired",
    "not_yet_valid": "the server's certificate is not valid yet",
    "unknown_ca": "the server's certificate is of a CA that this box does not trust",
    "host_name": "the server's certificate is for another host name",
    "plain_http": "the port speaks plain http, not TLS",
    "old_protocol": "the server speaks only an old version of TLS",
    "client_certificate": "the server asks for a client certificate and does not take what it gets",
    "bad_files": "the certificate files cannot be used",
    "other": "the TLS handshake failed",
}
BY_THE_CLOCK: Final = frozenset({"expired", "not_yet_valid"})


def context_for(
    *, ca_file: Path | None = None, client_cert: Path | None = None, client_key: Path | None = None
) -> ssl.SSLContext:
    """Return a context that verifies certificate and host name.

    Args:
        ca_file: certificates to trust in place of the system's.
        client_cert: what to show a server that asks.
        client_key: its key; None where that is in the certificate's file.

    Raises:
        OSError: a file cannot be read, is none of certificates, or its key has a passphrase (`ssl.SSLError`); it
            has the file's name.
    """
    for file in (ca_file, client_cert, client_key):
        if file is not None:
            file.open("rb").close()  # ssl would not say which one
    blamed = ca_file
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        if client_cert is not None:
            blamed = client_key or client_cert
            context.load_cert_chain(client_cert, client_key, password=_refuse_passphrase)
    except OSError as error:
        error.filename = error.filename or blamed
        raise
    return context


def fault_of(
    *, ca_file: Path | None = None, client_cert: Path | None = None, client_key: Path | None = None
) -> str | None:
    """Say which of the files `context_for` cannot use, and why; None where it can use them all."""
    try:
        context_for(ca_file=ca_file, client_cert=client_cert, client_key=client_key)
    except OSError as error:
        return f"{error.filename}: {(error.strerror or str(error)).lower()}"
    return None


def kind_of(error: ssl.SSLError) -> str:
    """Return which of `SENTENCES` a failure is."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return VERIFY.get(error.verify_code, "other")
    return REASONS.get(error.reason or "", "other")


def describe(error: ssl.SSLError, *, now: float | None = None) -> str:
    """Say what is wrong, in OpenSSL's word too; where the time matters, what this box takes the time to be.

    Args:
        error: a failed handshake, or an alert that came later.
        now: this box's wall time in seconds.
    """
    kind = kind_of(error)
    detail = getattr(error, "verify_message", None) or error.reason or str(error)
    said = f"{SENTENCES[kind]} ({detail})"
    if kind not in BY_THE_CLOCK:
        return said
    clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if now is None else now))
    return f"{said}; the clock of this box says {clock}"


def cause_of(error: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS failure below an error, if there is one."""
    for _ in range(8):
        if error is None or isinstance(error, ssl.SSLError):
            return error
        error = error.__cause__ or error.__context__
    return None


def _refuse_passphrase() -> str:
    """OpenSSL would ask for it on the terminal, and a service would wait there for ever."""
    raise OSError("the key has a passphrase, which nobody is here to type")
