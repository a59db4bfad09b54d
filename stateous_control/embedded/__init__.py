"""The PostgreSQL that comes as a wheel, started by a door of our own, for people without a server."""

from stateous_control.embedded.housing import CannotStart, InUse, find_install
from stateous_control.embedded.postgres import EmbeddedPostgres, url_file

__all__ = ["CannotStart", "EmbeddedPostgres", "InUse", "find_install", "url_file"]
