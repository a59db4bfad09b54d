"""A runner for the coroutines of these's tests."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    call: Any = functools.partial(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names})
    asyncio.run(call(), debug=False)
    return True
