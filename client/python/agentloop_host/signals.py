"""SIGTERM and SIGINT, which stop every host of the process."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

STOPPING = (signal.SIGTERM, signal.SIGINT)


@dataclass
class _Listeners:
    """The functions to call at a signal, and the handlers from before the first of them."""

    functions: list[Callable[[], None]] = field(default_factory=list)
    earlier: dict = field(default_factory=dict)
    came: bool = False

    def on_signal(self, *_) -> None:
        if self.came:
            os._exit(1)  # the second signal ends the process at once
        self.came = True
        for function in list(self.functions):
            function()


_listeners = _Listeners()


@contextmanager
def signals_call(function: Callable[[], None]) -> Iterator[None]:
    """Has SIGTERM and SIGINT call `function`, in the main thread at any point of its code.

    Several hosts may listen at a time. When the last one ends, the earlier handlers count again.
    """
    if not _listeners.functions:
        _listeners.earlier = {signum: signal.signal(signum, _listeners.on_signal) for signum in STOPPING}
        _listeners.came = False
    _listeners.functions.append(function)
    try:
        yield
    finally:
        _listeners.functions.remove(function)
        if not _listeners.functions:
            for signum, handler in _listeners.earlier.items():
                # A handler that was not set from Python cannot be given back.
                signal.signal(signum, signal.SIG_DFL if handler is None else handler)
