"""What the tests inherit from their caller, made the same everywhere: signals, locale, umask, and
what the environment says about terminals and proxies.

A shell starts its background jobs with SIGINT ignored, ``nohup`` ignores SIGHUP, and a supervisor
may block signals. A program inherits this and passes it on: then a test would send a signal that
takes no effect.
"""

from __future__ import annotations

import contextlib
import locale
import os
import signal
import threading
from types import FrameType

#: set for the processes of pytest-xdist, whose parent ignores SIGHUP
IGNORES_SIGHUP = "BATCHVAL_TESTS_IGNORE_SIGHUP"
#: Python ignores two of them in every program; the others are about the terminal.
_LEFT = {
    *(signal.SIGPIPE, signal.SIGXFSZ),
    *(signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
}
#: Variables by which a program writes other lines, or more of them.
_TERMINAL = ("COLUMNS", "LINES", "TERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")
_PYTHON = ("PYTHONWARNINGS", "PYTHONCOERCECLOCALE", "PYTHONUTF8", "PYTHONIOENCODING")
_LOCALE = "C.UTF-8"
_LOOPBACK = "localhost,127.0.0.1,::1"


def settle() -> None:
    """Leave nothing to the caller that a test depends on."""
    restore_signals()
    settle_environment()
    os.umask(0o022)
    with contextlib.suppress(locale.Error):  # what is read as text without a named encoding
        locale.setlocale(locale.LC_CTYPE, _LOCALE)


def settle_environment() -> None:
    """Set the variables that programs inherit. Proxies stay, but not for this machine."""
    for name in (*_TERMINAL, *_PYTHON, *(one for one in os.environ if one.startswith("LC_"))):
        os.environ.pop(name, None)
    os.environ["LC_ALL"] = os.environ["LANG"] = _LOCALE
    for name in ("no_proxy", "NO_PROXY"):
        before = os.environ.get(name, "")
        if _LOOPBACK not in before:
            os.environ[name] = ",".join(filter(None, (before, _LOOPBACK)))


def _outlive(number: int, frame: FrameType | None) -> None:
    """Do nothing. Unlike SIG_IGN, a handler is not inherited by programs."""


def restore_signals() -> None:
    """Unblock every signal and ignore none. The processes of pytest outlive a hangup as before."""
    if threading.current_thread() is not threading.main_thread():
        return  # the main thread alone may
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - _LEFT:
        if signal.getsignal(number) != signal.SIG_IGN:
            continue
        if number == signal.SIGHUP:
            os.environ[IGNORES_SIGHUP] = "1"
        is_interrupt = number == signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else signal.SIG_DFL)
    if IGNORES_SIGHUP in os.environ:
        signal.signal(signal.SIGHUP, _outlive)
