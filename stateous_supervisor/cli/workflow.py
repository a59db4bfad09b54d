"""Where `init` and `contract` get the workflow from: a control plane, asked with the folder's settings, or a file."""

from __future__ import annotations

import os
from pathlib import Path

import anyio

import stateous_supervisor
from stateous_supervisor.agent import config
from stateous_supervisor.agent.client import Client, options_for
from stateous_supervisor.agent.faults import Exit, Fault
from stateous_supervisor.agent.keys import url as url_of
from stateous_supervisor.agent.proxies import BadProxy, proxy_for
from stateous_supervisor.cli.daemon import client_for
from stateous_supervisor.scaffold.source import Source, from_control_plane, from_file, is_url


def find_source(source: str | None, folder: Path) -> Source:
    """Read the workflow that `source` names; without one, that of the control plane in the folder's settings.

    Raises Fault: 64 for a source that is no URL, 69 and 76 for a control plane, 78 for a file.
    """
    if source is not None and not is_url(source):
        return from_file(Path(source))
    if source is not None:
        try:
            source = url_of(source)
        except ValueError as error:
            raise Fault(Exit.USAGE, f"'{source}' is no source; it {error}") from None
    return anyio.run(_ask, source, folder)


async def _ask(url: str | None, folder: Path) -> Source:
    client, asked = _client(url, folder)
    try:
        return await from_control_plane(client, asked)
    finally:
        await client.close()


def _client(url: str | None, folder: Path) -> tuple[Client, str]:
    """A client for `url`, with the key and the certificates of the folder's settings where it has some."""
    if url is not None and not (folder / config.FILE).exists():
        product = f"stateous-supervisor/{stateous_supervisor.__version__}"
        try:
            proxy = proxy_for(url, proxy=None, no_proxy=None, environment=os.environ)
        except BadProxy as error:
            raise Fault(Exit.USAGE, str(error)) from None
        return Client(url, product=product, options=options_for(url, proxy=proxy)), url
    settings = config.load(folder, flags={"url": url}, environment=os.environ)
    return client_for(settings), settings.url
