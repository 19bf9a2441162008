"""Errors: of a failed tool, and of a host that the server refuses."""

from datetime import timedelta

from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_MAYBE


class ToolFailed(Exception):
    """Raised by a tool that failed. `effect` says if the call changed something: NONE, MAYBE or DONE."""

    def __init__(
        self, message: str, *, retryable=False, retry_delay: timedelta | None = None, effect=ATTEMPT_EFFECT_MAYBE
    ):
        super().__init__(message)
        self.retryable = retryable
        self.retry_delay = retry_delay
        self.effect = effect


class HostRefused(Exception):
    """Raised by `Host.run` where the server refuses the host for a lasting reason, such as a wrong token."""

    def __init__(self, reason: str):
        super().__init__(f"the server refused the host: {reason}")
