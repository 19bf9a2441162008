"""The error of a failed tool."""

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
