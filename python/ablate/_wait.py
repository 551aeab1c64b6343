"""Long calls of the library, which Ctrl-C leaves at once.

The main thread has another one make such a call, and waits for it: a signal is handled meanwhile.
What its handler raises (KeyboardInterrupt) leaves the call, which the library ends after the pass
that runs; the next one waits for that.  The call has its arguments until then, and what it returns
is freed.  Calls of other threads, to which Python delivers no signals, are made there, and so are
those of a child that was forked, which has no other thread, and where none can be started, as at the
end of Python."""

import atexit
import contextlib
import ctypes
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

# How often the main thread looks for a signal that another thread was interrupted by, in seconds.
_LOOK = 0.1


class _Job:
    """A call: `work` makes it, and `drop` frees what it returned."""

    def __init__(self, work: Callable[[], Any], drop: Callable[[Any], None]):
        self.work: Callable[[], Any] | None = work
        self.drop = drop
        self.stop = ctypes.c_int(0)  # the library reads it
        self.left = False
        self._results: list[Any] = []  # at most one: who pops it has it
        self._running = threading.Lock()
        self._running.acquire()

    def make(self, stop_when: Callable[[Any], None]) -> None:
        """In the other thread."""
        result, work = None, self.work
        self.work = None
        if not self.stop.value and work is not None:
            stop_when(ctypes.byref(self.stop))
            try:
                result = work()
            except BaseException as error:  # of ctypes: an argument of another type
                result = error
            stop_when(None)
        del work
        self._results.append(result)
        del result
        if self.left:
            self._drop_result()
        self._running.release()

    def wait(self) -> Any:
        """In the main thread."""
        while not self._running.acquire(timeout=_LOOK):
            pass
        return self._results.pop()

    def leave(self) -> None:
        """Nobody waits any more.  It takes no lock, for which another signal could come."""
        self.left = True
        self.stop.value = 1
        self._drop_result()

    def _drop_result(self) -> None:
        with contextlib.suppress(IndexError):
            result = self._results.pop()
            if result is not None:
                self.drop(result)


class Waiter:
    """The other thread, which begins with the first call."""

    def __init__(self, stop_when: Callable[[Any], None]):
        self._stop_when = stop_when
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._alone = False
        os.register_at_fork(after_in_child=self._begin_child)

    def _begin_child(self) -> None:
        self._alone, self._thread = True, None

    def is_wanted(self) -> bool:
        """Would a call in this thread keep Python from handling a signal, and is there another thread?"""
        if self._alone or threading.get_ident() != threading.main_thread().ident:
            return False
        if self._thread is None:
            self._begin()
        return not self._alone

    def _begin(self) -> None:
        thread = threading.Thread(target=self._work, name="ablate", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._alone = True
        else:
            self._thread = thread
            atexit.register(self._finish)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.make(self._stop_when)
            del job

    def _finish(self) -> None:
        """A call that was left ends before the libraries that it uses do.  Who does not wait for that, by
        another Ctrl-C, ends the process, as a signal does."""
        self._alone = True
        self._jobs.put(None)
        if not self._thread:
            return
        ours = (threading.get_ident() == threading.main_thread().ident
                and signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        if ours:
            for stream in sys.stdout, sys.stderr:
                with contextlib.suppress(Exception):  # there is none, or it is closed
                    stream.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._thread.join()
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def run(self, work: Callable[[], Any], drop: Callable[[Any], None]) -> Any:
        """What work() returns; what it returns as an exception, or a signal's handler raises, is raised."""
        job = _Job(work, drop)
        try:
            self._jobs.put(job)
            result = job.wait()
        except BaseException:
            while not job.stop.value:
                try:
                    job.leave()
                except BaseException:  # of another signal: the first is raised
                    pass
            raise
        if isinstance(result, BaseException):
            raise result
        return result
