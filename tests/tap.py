"""tap.py - checks of a test in Python, as TAP on stdout."""

tests = 0


def ok(passed, what, notes=()):
    """A check, and the lines to print if it failed."""
    global tests
    tests += 1
    print(f"{'ok' if passed else 'not ok'} {tests} - {what}", flush=True)
    if not passed:
        for note in notes:
            print(f"# {note}", flush=True)


def skip(what, why):
    global tests
    tests += 1
    print(f"ok {tests} - {what} # SKIP {why}", flush=True)


def done():
    """After the last."""
    print(f"1..{tests}", flush=True)
