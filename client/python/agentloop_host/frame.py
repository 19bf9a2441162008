"""What a frame can carry."""

from dataclasses import dataclass

from agentloop.v1 import tool_host_pb2 as pb

# What a frame has beside a call's id and its payload, at most: tags, lengths, numbers.
OVERHEAD_BYTES = 64


def cut(text: str, most: int) -> str:
    """A text of at most so many bytes of UTF-8, cut between characters; what is no Unicode is a question mark."""
    encoded = text.encode(errors="replace")
    return encoded[:most].decode(errors="ignore")


@dataclass(frozen=True)
class FrameBound:
    """The largest frame that the server takes, as its last welcome has it; 0 is none."""

    max_bytes: int = 0

    def takes(self, frame: pb.ConnectRequest) -> bool:
        return not self.max_bytes or frame.ByteSize() <= self.max_bytes

    def beside(self, call_id: str, most: int) -> int:
        """How many of these bytes have room in a frame about a call, at least one."""
        if not self.max_bytes:
            return most
        return max(1, min(most, self.max_bytes - len(call_id) - OVERHEAD_BYTES))
