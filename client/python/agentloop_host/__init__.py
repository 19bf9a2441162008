"""A tool host for agentloop. It connects to the server, runs the calls that it gets, and survives lost connections.

    host = Host("127.0.0.1:50051")

    @host.tool(description="Adds two numbers.", schema={...}, effect=IDEMPOTENT)
    async def add(call, a, b):
        return a + b

    asyncio.run(host.run())

It needs only the generated package `agentloop`, grpcio and protobuf.
"""

from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_DONE as DONE
from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_MAYBE as MAYBE
from agentloop.v1.events_pb2 import ATTEMPT_EFFECT_NONE as NONE
from agentloop.v1.events_pb2 import OUTPUT_STREAM_STDERR as STDERR
from agentloop.v1.events_pb2 import OUTPUT_STREAM_STDOUT as STDOUT
from agentloop.v1.tool_host_pb2 import HOOK_POINT_POST_RUN as POST_RUN
from agentloop.v1.tool_host_pb2 import HOOK_POINT_POST_TOOL as POST_TOOL
from agentloop.v1.tool_host_pb2 import HOOK_POINT_PRE_RUN as PRE_RUN
from agentloop.v1.tool_host_pb2 import HOOK_POINT_PRE_TOOL as PRE_TOOL
from agentloop.v1.tool_host_pb2 import ContextItem, HookVerdict
from agentloop.v1.types_pb2 import EFFECT_CLASS_IDEMPOTENT as IDEMPOTENT
from agentloop.v1.types_pb2 import EFFECT_CLASS_KEYED as KEYED
from agentloop.v1.types_pb2 import EFFECT_CLASS_READ_ONLY as READ_ONLY
from agentloop.v1.types_pb2 import EFFECT_CLASS_UNSAFE as UNSAFE
from agentloop.v1.types_pb2 import FileContent, Image, Instruction, Link

from .ask import NoAnswer
from .call import Call, Output
from .extensions import ExtensionFailed
from .failure import HostRefused, ToolFailed
from .host import Host

__all__ = [
    "Call",
    "Host",
    "HostRefused",
    "Image",
    "FileContent",
    "Link",
    "Output",
    "ToolFailed",
    "NoAnswer",
    "ExtensionFailed",
    # Results of extensions.
    "ContextItem",
    "HookVerdict",
    "Instruction",
    # Points at which hooks are called.
    "PRE_RUN",
    "POST_RUN",
    "PRE_TOOL",
    "POST_TOOL",
    # Effect classes: may a call run twice?
    "READ_ONLY",
    "IDEMPOTENT",
    "KEYED",
    "UNSAFE",
    # Effects of a failed call.
    "NONE",
    "MAYBE",
    "DONE",
    # Streams of a tool's output.
    "STDOUT",
    "STDERR",
]
