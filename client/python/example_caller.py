"""An example caller: it starts a run, shows its events, approves its tool calls, and reopens a lost stream."""

import argparse
import os
import sys
import time
import uuid

import grpc

from agentloop.v1 import agent_loop_pb2 as pb
from agentloop.v1.agent_loop_pb2_grpc import AgentLoopStub
from agentloop.v1.events_pb2 import AssistantMessage, RunEvent, RunFinished
from agentloop.v1.runs_pb2 import RunInput
from agentloop.v1.types_pb2 import (
    HUMAN_REQUEST_KIND_APPROVE,
    RUN_STATUS_COMPLETED,
    Approve,
    Decision,
    HumanRequest,
    Message,
    RunErrorCode,
    RunStatus,
)
from agentloop_host.environment import credentials_of_environment
from agentloop_host.transport import address_of, credentials_of

ATTEMPTS_MAX = 20  # in a row without a new event
RETRYABLE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
}
CHANNEL_OPTIONS = [("grpc.keepalive_time_ms", 20_000), ("grpc.max_reconnect_backoff_ms", 1_000)]


class Authorized(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds the bearer token to each call."""

    def __init__(self, token: str):
        self.header = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation, details, request):
        return continuation(details._replace(metadata=[*(details.metadata or ()), self.header]), request)

    intercept_unary_stream = intercept_unary_unary


def open_channel(server: str) -> grpc.Channel:
    """A channel with the credentials of the environment: AGENTLOOP_CA_FILE, _CERT_FILE, _KEY_FILE and AGENTLOOP_TOKEN."""
    found = credentials_of_environment(server)
    address, encrypted = address_of(server)
    encryption = credentials_of(encrypted, found.get("ca"), found.get("certificate"), found.get("key"))
    if encryption:
        channel = grpc.secure_channel(address, encryption, options=CHANNEL_OPTIONS)
    else:
        channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
    token = found.get("token")
    return grpc.intercept_channel(channel, Authorized(token)) if token else channel


class Caller:
    """One run, followed from its prompt to its end."""

    def __init__(self, stub: AgentLoopStub, run_input: RunInput):
        self.stub = stub
        self.run_input = run_input
        self.last_seq = 0
        self.last_message = AssistantMessage()
        self.screen = Screen()

    def follow(self) -> RunFinished:
        """Follows the run to its end. Errors: a lasting grpc.RpcError, ConnectionError after too many attempts."""
        failures = 0
        while failures < ATTEMPTS_MAX:
            seen = self.last_seq
            try:
                if finished := self._follow_once():
                    return finished
                reason = "it ended early"
            except grpc.RpcError as error:
                if error.code() not in RETRYABLE:
                    raise
                reason = error.code().name
            failures = failures + 1 if self.last_seq == seen else 1
            self.screen.line(f"stream lost ({reason}), reopening it after event {self.last_seq}")
            time.sleep(min(0.1 * 2**failures, 2.0))
        raise ConnectionError(reason)

    def _follow_once(self) -> RunFinished | None:
        stream = self._stream()
        try:
            for response in stream:
                if finished := self._on_event(response.event):
                    return finished
        finally:
            stream.cancel()
        return None

    def _stream(self) -> grpc.Call:
        """Starts the run, or subscribes after the last event. The run id makes a second start harmless."""
        if self.last_seq == 0:
            return self.stub.RunStream(pb.RunStreamRequest(input=self.run_input))
        return self.stub.Subscribe(pb.SubscribeRequest(run_id=self.run_input.run_id, after_seq=self.last_seq))

    def _on_event(self, event: RunEvent) -> RunFinished | None:
        kind = event.WhichOneof("event")
        if event.seq:
            self.screen.line(f"[{event.seq}] {kind}")
        match kind:
            case "model_delta":
                self.screen.delta(event.model_delta)
            case "partial_message":
                self.screen.message(event.partial_message)
            case "assistant_message":
                self.screen.message(event.assistant_message)
                self.last_message = event.assistant_message
            case "human_requested":
                self._answer(event.human_requested.request)
        # After the handling: an event whose handling failed comes again after a reconnect.
        self.last_seq = max(self.last_seq, event.seq)
        return event.run_finished if kind == "run_finished" else None

    def _answer(self, request: HumanRequest) -> None:
        self.screen.line(f"{request.tool} {request.arguments_json}: {request.question}")
        if request.kind != HUMAN_REQUEST_KIND_APPROVE:
            return  # left to a human
        approval = pb.SubmitApprovalRequest(
            request_id=request.request_id,
            decision=Decision(approve=Approve()),
            digest=request.digest,
            decided_by="example caller",
        )
        try:
            self.stub.SubmitApproval(approval)
            self.screen.line("approved")
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
                raise
            self.screen.line(f"not approved: {error.details()}")  # somebody else answered first


class Screen:
    """Prints the model's text as it comes, and lines about events between."""

    def __init__(self):
        self._shown = ""
        self._attempt = (0, 0)  # model call and attempt: each starts a new text
        self._delta_seq = 0
        self._in_line = False

    def line(self, text: str) -> None:
        print("\n" + text if self._in_line else text, flush=True)
        self._in_line = False

    def delta(self, delta) -> None:
        self._begin(delta)
        if delta.delta_seq > self._delta_seq:
            self._delta_seq = delta.delta_seq
            self._text(delta.text)

    def message(self, event) -> None:
        """Shows the missing rest of a whole or partial message, or all of it if the shown text differs."""
        self._begin(event)
        self._delta_seq = max(self._delta_seq, getattr(event, "delta_seq", 0))
        text = text_of(event.message)
        if not text.startswith(self._shown):
            self.line("")
            self._shown = ""
        self._text(text[len(self._shown) :])

    def _begin(self, event) -> None:
        if self._attempt != (event.model_call, event.attempt):
            self._attempt = (event.model_call, event.attempt)
            self._shown, self._delta_seq = "", 0

    def _text(self, text: str) -> None:
        self._shown += text
        self._in_line = self._in_line or bool(text)
        print(text, end="", flush=True)


def text_of(message: Message) -> str:
    return "".join(part.text for part in message.parts if part.HasField("text"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default=os.environ.get("AGENTLOOP_SERVER") or "127.0.0.1:50051",
                        type=lambda address: address.removeprefix("http://"))
    parser.add_argument("--run-id", default=str(uuid.uuid4()))
    parser.add_argument("--session-id")
    parser.add_argument("prompt", nargs="+")
    options = parser.parse_args()

    run_input = RunInput(run_id=options.run_id, session_id=options.session_id, prompt=" ".join(options.prompt))
    with open_channel(options.server) as channel:
        caller = Caller(AgentLoopStub(channel), run_input)
        finished = caller.follow()

    print("status:", RunStatus.Name(finished.status).removeprefix("RUN_STATUS_").lower())
    if finished.HasField("error"):
        print("error:", RunErrorCode.Name(finished.error.code).removeprefix("RUN_ERROR_CODE_"), finished.error.message)
    if finished.final_entry_no:
        print("answer:", text_of(caller.last_message.message))
    sys.exit(0 if finished.status == RUN_STATUS_COMPLETED else 1)


if __name__ == "__main__":
    main()
