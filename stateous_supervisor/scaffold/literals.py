"""JSON values as Python source. Pure."""

from __future__ import annotations

import re
from typing import Any

LINE_CHARS_MAX = 110


def literal(value: Any) -> str:
    """Return `value` as a Python literal, with double quotes where that needs no escaping."""
    if isinstance(value, str):
        text = repr(value)
        is_plain = text.startswith("'") and '"' not in text and "\\'" not in text
        return f'"{text[1:-1]}"' if is_plain else text
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(inner)}" for key, inner in value.items()) + "}"
    return repr(value)


def call(left: str, arguments: list[str], indent: str) -> str:
    """Return ``left(arguments)`` as one line, or as one line an argument where that is too long."""
    line = f"{indent}{left}({', '.join(arguments)})\n"
    if len(line) <= LINE_CHARS_MAX + 1:
        return line
    inner = f"{indent}    {', '.join(arguments)}"
    if len(inner) <= LINE_CHARS_MAX:
        return f"{indent}{left}(\n{inner}\n{indent})\n"
    return f"{indent}{left}(\n" + "".join(f"{indent}    {each},\n" for each in arguments) + f"{indent})\n"


def docstring(text: str, indent: str) -> str:
    """Return `text` as a docstring at `indent`, whatever it holds."""
    clean = text.strip().replace("\\", "\\\\").replace('"""', r"\"\"\"")
    if re.search(
        r'(?<!\\)(\\\\)*"$', clean
    ):  # a last quote that no backslash escapes would end the docstring
        clean = clean[:-1] + r"\""
    lines = [_printable(line.strip()) for line in clean.splitlines()]
    body = "\n".join(f"{indent}{line}" if line else "" for line in lines).lstrip()
    return f'{indent}"""{body}' + (f'\n{indent}"""\n' if len(lines) > 1 else '"""\n')


def _printable(line: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
