"""Bounds on the size of a frame."""

from dataclasses import dataclass

from agentloop.v1 import tool_host_pb2 as pb

# Upper bound of a frame's bytes other than the call id and the payload: tags, lengths, numbers.
OVERHEAD_BYTES = 64


def cut(text: str, most: int) -> str:
    """Cuts a text to at most `most` bytes of UTF-8, between characters. Invalid Unicode becomes a question mark."""
    encoded = text.encode(errors="replace")
    return encoded[:most].decode(errors="ignore")


def valid(text: str) -> str:
    """The text with a question mark in the place of each character that is no Unicode."""
    return text.encode(errors="replace").decode()


@dataclass(frozen=True)
class FrameBound:
    """The largest frame that the server accepts, from its last welcome. 0 means no bound."""

    max_bytes: int = 0

    def fits(self, frame: pb.ConnectRequest) -> bool:
        return not self.max_bytes or frame.ByteSize() <= self.max_bytes

    def payload_bytes(self, call_id: str, most: int) -> int:
        """The payload that fits into a frame about this call: at least 1 byte, at most `most`."""
        if not self.max_bytes:
            return most
        return max(1, min(most, self.max_bytes - len(call_id) - OVERHEAD_BYTES))
