"""Threads for `def` routines: used again, never waited for."""

from __future__ import annotations

import threading
from contextvars import ContextVar

from stateous_supervisor.host.threads import Threads

WAIT_S = 5.0


def test_a_thread_is_used_again_and_goes_when_it_is_idle() -> None:
    threads = Threads(idle_s=0.1)
    used: list[threading.Thread] = []
    for _ in range(20):
        is_done = threading.Event()

        def job(is_done: threading.Event = is_done) -> None:
            used.append(threading.current_thread())
            is_done.set()

        threads.start(job)
        assert is_done.wait(WAIT_S)
        while not threads._idle:
            pass
    assert len({thread.ident for thread in used}) == 1
    used[0].join(WAIT_S)
    assert not used[0].is_alive()


def test_a_busy_thread_is_given_nothing_else() -> None:
    threads = Threads(idle_s=0.1)
    barrier = threading.Barrier(11)

    def wait() -> None:
        barrier.wait(WAIT_S)

    for _ in range(10):
        threads.start(wait)
    barrier.wait(WAIT_S)


def test_nothing_of_one_job_is_seen_by_the_next() -> None:
    threads = Threads(idle_s=0.1)
    variable: ContextVar[int] = ContextVar("variable", default=0)
    seen: list[int] = []
    for _ in range(2):
        is_done = threading.Event()

        def job(is_done: threading.Event = is_done) -> None:
            seen.append(variable.get())
            variable.set(1)
            is_done.set()

        threads.start(job)
        assert is_done.wait(WAIT_S)
    assert seen == [0, 0]


def test_a_job_that_comes_while_the_thread_gives_up_is_run() -> None:
    threads = Threads(idle_s=0.001)
    done = threading.Semaphore(0)
    for _ in range(500):
        threads.start(done.release)
        assert done.acquire(timeout=WAIT_S)
