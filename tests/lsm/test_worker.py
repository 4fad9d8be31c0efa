"""Jobs run in order, errors reach the owner, waiting needs no sleeps."""

from __future__ import annotations

import threading
import weakref

import pytest

from tideline.errors import Closed, InvalidRequest, Unavailable
from tideline.lsm.worker import Worker


@pytest.fixture
def worker():
    worker = Worker("test")
    yield worker
    worker.close()


def test_jobs_run_in_order_in_one_other_thread(worker):
    ran = []
    for number in range(100):
        worker.submit(lambda number=number: ran.append((number, threading.current_thread().name)))
    worker.drain()
    assert ran == [(number, "test") for number in range(100)]


def test_an_error_reaches_the_owner_as_it_is_and_does_not_stop_the_next_job(worker):
    first, second = Unavailable("disk is full"), KeyError("x")
    ran = []

    def fail(error):
        raise error

    worker.check()
    worker.submit(lambda: fail(first))
    worker.submit(lambda: fail(second))
    worker.submit(lambda: ran.append(1))
    worker.drain()
    assert ran == [1]
    for expected in (first, second):
        with pytest.raises(type(expected)) as caught:
            worker.check()
        assert caught.value is expected
    worker.check()


def test_unread_errors_do_not_pile_up(worker):
    def fail(number):
        raise ValueError(number)

    for number in range(300):
        worker.submit(lambda number=number: fail(number))
    worker.drain()
    for number in range(100):
        with pytest.raises(ValueError, match=f"^{number}$"):
            worker.check()
    worker.check()


def test_drain_waits_for_what_was_submitted_before_it(worker):
    go, ran = threading.Event(), []
    worker.submit(go.wait)
    worker.submit(lambda: ran.append(1))
    waiting = threading.Thread(target=worker.drain)
    waiting.start()
    assert ran == []
    assert waiting.is_alive()
    go.set()
    waiting.join()
    assert ran == [1]


def test_a_job_may_submit_but_not_wait(worker):
    ran = []
    worker.submit(lambda: worker.submit(lambda: ran.append(1)))
    worker.submit(worker.drain)
    worker.submit(worker.close)
    worker.drain()
    worker.drain()
    assert ran == [1]
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="its own worker"):
            worker.check()


def test_close_finishes_what_was_submitted():
    worker, ran = Worker(), []
    for number in range(50):
        worker.submit(lambda number=number: ran.append(number))
    worker.close()
    worker.close()
    assert ran == list(range(50))
    worker.drain()
    with pytest.raises(Closed):
        worker.submit(lambda: None)


def test_a_finished_job_is_let_go(worker):
    class Big:
        pass

    big = Big()
    gone = weakref.ref(big)
    worker.submit(lambda big=big: None)
    del big
    worker.drain()
    assert gone() is None
