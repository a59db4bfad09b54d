"""Certificates of the web server: TLS 1.2 or newer, read from two files, read again when asked. The only door to `ssl`.

A renewed certificate that is wrong changes nothing: the one in use stays.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn


class CannotUse(Exception):
    """The files are no certificate and key that go together. The text is one plain sentence."""


class Certificates:
    """A certificate chain and its key (PEM).

    Args:
        chain, key: the files. Raises `CannotUse`.
    """

    def __init__(self, chain: Path, key: Path) -> None:
        self._chain = chain
        self._key = key
        self.context = self._loaded()

    def reload(self) -> None:
        """Read the files again, for the connections that come from now on. Raises `CannotUse`, and keeps the old."""
        self._loaded()
        self._load_into(self.context)

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load_into(context)
        return context

    def _load_into(self, context: ssl.SSLContext) -> None:
        where = f"{self._chain} with {self._key}"
        try:
            context.load_cert_chain(self._chain, self._key, password=_refuse)
        except OSError as error:  # also ssl.SSLError
            why = error.strerror or str(error)
            raise CannotUse(f"{where} cannot be used for TLS: {why}") from None
        except _Encrypted:
            raise CannotUse(
                f"{where} cannot be used for TLS: the key has a passphrase, and nobody is there to type it"
            ) from None


class _Encrypted(Exception):
    pass


def _refuse() -> NoReturn:
    raise _Encrypted
