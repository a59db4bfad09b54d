"""Stands in for a renderer and a mailer: what they did is a line of `printed.txt` in the working folder."""

from __future__ import annotations

from pathlib import Path

DONE = Path("printed.txt")


async def render(report_id: int) -> str:
    url = f"https://reports.example/{report_id}.pdf"
    _write(f"rendered {url}")
    return url


async def send(email: str, url: str) -> None:
    _write(f"told {email} of {url}")


def _write(line: str) -> None:
    with DONE.open("a") as file:
        file.write(f"{line}\n")
