"""Ctrl-C in a long call: KeyboardInterrupt at once, and the library works on."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ablate
from ablate import _library, _wait
from ablate._case import Case, Rows

LATEST = 2  # seconds; it takes some milliseconds where the machine does nothing else

# Each takes more than 10 seconds from its last line "ready" on.
JUDGE = """
    def zeros(**inputs):
        print("ready", flush=True)
        return {"out": np.zeros((512, 32, 64))}
    ablate.judge(zeros, "e74 steps=512 batch=32 heads=1 n_state=64 dim=512")
"""
RUN = """
    a, b = np.ones((3000, 12000)), np.ones((12000, 3000))
    print("ready", flush=True)
    ablate.op("gemm")(A=a, B=b)
"""

SCRIPT = """
import signal, numpy as np, ablate
signal.signal(signal.SIGINT, signal.default_int_handler)  # who is in the background ignores it
try:
    %s
    print("ended", flush=True)
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
softmax = lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)
print("then", ablate.judge(softmax, "softmax rows=6 columns=100 fill=normal").ok, flush=True)
"""


@pytest.mark.parametrize("work, calls", [(JUDGE, 1), (RUN, 1)], ids=["judge", "op"])
def test_interrupt(work, calls):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT % work.strip()], stdout=subprocess.PIPE,
                               env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True)
    for _ in range(calls):
        assert process.stdout.readline() == "ready\n"
    time.sleep(1.5)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "KeyboardInterrupt\n"
    took = time.monotonic() - sent
    assert process.stdout.readline() == "then True\n"
    assert process.wait() == 0
    process.stdout.close()
    assert took < LATEST


@pytest.mark.parametrize("times", [1, 5])
def test_interrupt_again(times):
    """Who does not wait for the call's end is let go at once, and reads of one KeyboardInterrupt."""
    script = SCRIPT.split("try:")[0] + RUN.replace("\n    ", "\n")
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
                               text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    said = ""
    while not said.endswith("\nKeyboardInterrupt\n"):
        line = process.stderr.readline()
        assert line, said
        said += line
    time.sleep(0.5)
    sent = time.monotonic()
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    said += process.stderr.read()
    assert process.wait() == -signal.SIGINT and time.monotonic() - sent < LATEST
    assert said.count("Traceback") == said.count("KeyboardInterrupt\n") == 1 and "join" not in said
    process.stdout.close()
    process.stderr.close()


def test_a_signal_while_a_call_is_left(monkeypatch):
    """The first is raised, alone, and the library is told to end the call."""
    leave, seen, begun = _wait._Job.leave, [], threading.Event()

    def interrupted(job):
        seen.append(job)
        if len(seen) == 1:
            raise KeyboardInterrupt("the second")
        leave(job)

    def first(job):
        begun.wait()
        raise KeyboardInterrupt("the first")

    monkeypatch.setattr(_wait._Job, "leave", interrupted)
    monkeypatch.setattr(_wait._Job, "wait", first)
    def work():
        begun.set()
        time.sleep(0.1)
        return 7

    dropped = []
    waiter = _wait.Waiter(lambda stop: None)
    assert waiter.is_wanted()
    with pytest.raises(KeyboardInterrupt, match="^the first$") as error:
        waiter.run(work, dropped.append)
    assert error.value.__context__ is None and len(seen) == 2 and seen[0].stop.value == 1
    waiter._finish()
    assert dropped == [7] and not seen[0]._results


class Asked(Exception):
    """What a signal's handler raises."""


def test_handler():
    """Whatever a handler raises leaves the call, and one that raises nothing does not."""
    seen = []

    def handler(number, frame):
        seen.append(number)
        if len(seen) > 1:
            raise Asked

    case = Case("e74 steps=64 batch=4 n_state=32 dim=32")
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        with pytest.raises(Asked):
            while True:
                Rows(_library.call("abl_judge", case, "ref32", None, 3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) > 1
    assert all(r.passed for r in Rows(_library.call("abl_judge", case, "ref32", None, 1)).rows())


def test_errors_and_threads():
    """Errors are the caller's, whichever thread makes a call; a wrong argument is none of the library's."""
    found = []

    def refused():
        try:
            Case("softmax rows=0")
        except ablate.Error as error:
            found.append(str(error))

    refused()
    thread = threading.Thread(target=refused)
    thread.start()
    thread.join()
    assert len(found) == 2 and found[0] == found[1] and "rows" in found[0]
    with pytest.raises(Exception, match="argument 1"):
        _library.call("abl_case_new", 1.5)
    assert ablate.op("relu")(x=np.array([[-1.0, 2.0]])).y.tolist() == [[0, 2]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork():
    """A child has no other thread, and calls the library itself."""
    x = np.array([[1.0, 2.0]])
    here = ablate.op("softmax")(x=x).y
    assert ablate.judge(lambda x: np.maximum(x, 0), "relu rows=3 dim=4").ok
    child = os.fork()
    if not child:
        good = (np.array_equal(ablate.op("softmax")(x=x).y, here)
                and ablate.judge(lambda x: np.maximum(x, 0), "relu rows=3 dim=4").ok)
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Before the package is imported, so that it runs after the package's own end.
AT_EXIT = """
import atexit
def last():
    print(ablate.op("relu")(x=np.ones((100, 100))).y.sum(), flush=True)
atexit.register(last)
import numpy as np, ablate
%s
"""


@pytest.mark.parametrize("first", ["", "ablate.op('relu')(x=np.ones((100, 100)))"], ids=["new", "used"])
def test_exit(first):
    """A call at the end of Python, when the other thread has ended or can no longer be started."""
    done = subprocess.run([sys.executable, "-c", AT_EXIT % first], capture_output=True, text=True,
                          timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("10000.0\n", "", 0)
