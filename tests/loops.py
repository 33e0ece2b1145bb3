"""Coroutines for tests without an async framework."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def in_a_thread(function: Callable[..., Any], **arguments: Any) -> Any:
    """What a function returns that runs a loop of its own, from a thread without one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, **arguments).result()


def run_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns, from a thread of its own: Playwright's loop runs in the tests' own thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()
