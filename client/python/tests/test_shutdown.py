"""The end of a host: calls that outlast the drain timeout, runtimes, signals, and callbacks that raise."""

import asyncio
import signal
from unittest import main, mock

import grpc
from google.protobuf.duration_pb2 import Duration

from agentloop.v1 import tool_host_pb2 as pb
from agentloop_host import MAYBE, PRE_RUN, READ_ONLY, Host, HostRefused
from fake_server import Connection, HostTest, soon

ANYTHING = {"type": "object"}


async def is_ready(connection):
    """Waits until the host has read its welcome: one that drains before that has nothing to say."""
    await connection.send(ping=pb.Ping(nonce=1))
    await connection.expect("pong")


class Shutdown(HostTest):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.host._stop_grace = 5.0

    def tool(self, function):
        return self.host.tool(description="Waits.", schema=ANYTHING, effect=READ_ONLY)(function)

    async def drained(self, tool: str) -> Connection:
        """A connection with a call of this tool, whose host shuts down. The drain timeout is over at once."""
        self.run_host()
        connection = await self.welcome()
        await connection.send_call("c1", tool)
        self.host.drain()
        await connection.expect("draining")
        return connection

    async def reported(self, connection: Connection) -> None:
        """Waits for the failure of a call that was stopped, and for the end of the host."""
        failed = await connection.expect("call_failed")
        self.assertEqual(
            (failed.message, failed.retryable, failed.effect), ("the call was stopped before it ended", True, MAYBE)
        )
        await connection.acknowledge("c1")
        await connection.expect("goodbye")
        connection.end(None)
        self.assertTrue(await soon(self.running))

    async def test_a_call_that_outlasts_the_drain_timeout_is_stopped_and_reported(self):
        @self.tool
        async def wait(call):
            await asyncio.Event().wait()

        await self.reported(await self.drained("wait"))

    async def test_a_call_that_does_not_stop_is_reported_after_the_grace(self):
        self.host._stop_grace = 1.0
        leave = asyncio.Event()

        @self.tool
        async def stay(call):
            while not leave.is_set():
                try:
                    await leave.wait()
                except asyncio.CancelledError:
                    pass
            return "too late"

        await self.reported(await self.drained("stay"))
        leave.set()

    async def test_a_call_that_ends_in_its_grace_has_its_own_result(self):
        @self.tool
        async def wait(call):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "finished all the same"

        connection = await self.drained("wait")
        self.assertEqual((await connection.expect("call_result")).output, "finished all the same")
        await connection.acknowledge("c1")

    async def test_a_runtime_that_does_not_close_does_not_hold_up_the_end(self):
        opened = asyncio.Event()

        async def open_runtime(init_data, hints):
            opened.set()

        async def close_runtime(runtime):
            await asyncio.Event().wait()

        self.host.runtime(open=open_runtime, close=close_runtime)
        self.run_host()
        connection = await self.welcome()
        await connection.send(open_runtime=pb.OpenRuntime(runtime_id="r1"))
        await soon(opened.wait())
        with mock.patch("agentloop_host.extensions.CLOSE_TIMEOUT", 0.05):
            self.host.drain()
            await connection.expect("draining")
            await connection.expect("goodbye")
            connection.end(None)
            self.assertTrue(await soon(self.running))

    async def test_signals_are_given_back(self):
        def own(*_):
            pass

        earlier = signal.signal(signal.SIGTERM, own)
        self.addCleanup(signal.signal, signal.SIGTERM, earlier)
        of_asyncio = signal.getsignal(signal.SIGINT)
        self.run_host()
        connection = await self.welcome()
        await is_ready(connection)
        signal.raise_signal(signal.SIGTERM)
        await connection.expect("draining")
        connection.end(None)
        await soon(self.running)
        self.assertEqual((signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)), (own, of_asyncio))

    async def test_a_signal_stops_every_host_of_the_process(self):
        before = signal.getsignal(signal.SIGTERM)
        first, second = self.host, Host(self.host.server, "host-2", drain_timeout=0.0)
        self.run_host()
        running = asyncio.create_task(second.run())
        connections = [await self.welcome(), await self.welcome()]
        for connection in connections:
            await is_ready(connection)
        signal.raise_signal(signal.SIGTERM)
        for connection in connections:
            await connection.expect("draining")
            connection.end(None)
        await soon(asyncio.gather(running, self.running))
        self.assertTrue(first._draining.is_set() and second._draining.is_set())
        self.assertEqual(signal.getsignal(signal.SIGTERM), before)

    async def test_a_status_is_a_bounded_text(self):
        self.host.status = mock.Mock(side_effect=["ä" * 1000, 1, "end"])
        self.run_host()
        with self.assertLogs("agentloop_host", "ERROR"):
            connection = await self.welcome(heartbeat_interval=Duration(nanos=20_000_000))
            texts = []
            while len(texts) < 3:
                frame = await connection.next()
                if frame.HasField("heartbeat"):
                    texts.append(frame.heartbeat.status_text)
        self.assertEqual(texts, ["ä" * 512, "", "end"])

    async def test_callbacks_that_raise_do_not_end_the_host_or_its_heartbeats(self):
        self.host.status = mock.Mock(side_effect=ValueError("no status"))
        self.host.on_ready = mock.Mock(side_effect=ValueError("not ready"))
        self.run_host()
        with self.assertLogs("agentloop_host", "ERROR") as logged:
            connection = await self.welcome(heartbeat_interval=Duration(nanos=20_000_000))
            beats = 0
            while beats < 3:
                beats += (await connection.next()).WhichOneof("frame") == "heartbeat"
        self.assertIn("no status", "".join(logged.output))
        self.assertIn("not ready", "".join(logged.output))

    async def test_an_extension_is_stopped_at_its_deadline(self):
        @self.host.hook(PRE_RUN)
        async def guard(request, run):
            await asyncio.Event().wait()

        self.run_host()
        connection = await self.welcome()
        asked = pb.ExtensionRequest(request_id="q1", name="guard", hook=pb.HookRequest(), time_left=Duration(nanos=1))
        await connection.send(extension_request=asked)
        answer = await connection.expect("extension_response")
        self.assertEqual((answer.request_id, answer.failure.message), ("q1", "there was no answer in time"))


class ToolsRefused(HostTest):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.leave = asyncio.Event()

        @self.host.tool(description="Waits.", schema=ANYTHING, effect=READ_ONLY)
        async def wait(call):
            await self.leave.wait()
            return "waited"

        self.run_host()

    def refusal(self, refusal) -> dict:
        return {"capabilities": [pb.CapabilityVerdict(name="wait", reason="other terms", refusal=refusal)]}

    async def test_a_host_whose_tools_are_all_refused_delivers_what_it_has_and_ends(self):
        self.host.drain_timeout = 20.0
        first = await self.welcome()
        await first.send_call("c1", "wait")
        first.end(grpc.StatusCode.UNAVAILABLE)
        second = await self.welcome(**self.refusal(pb.CAPABILITY_REFUSAL_DIFFERENT))
        await second.expect("draining")
        self.leave.set()
        await second.expect("call_result")
        await second.acknowledge("c1")
        await second.expect("goodbye")
        second.end(None)
        told = "the server refused the host: it refused every tool: wait: other terms"
        running, self.running = self.running, asyncio.create_task(asyncio.sleep(0))
        with self.assertRaisesRegex(HostRefused, told):
            await soon(running)

    async def test_a_host_whose_tools_are_refused_as_weaker_waits_until_they_are_accepted(self):
        first = await self.welcome(**self.refusal(pb.CAPABILITY_REFUSAL_WEAKER))
        await first.send(go_away=pb.GoAway(reason="accepted"))
        first.end(None)
        second = await self.welcome()
        self.leave.set()
        await second.send_call("c1", "wait")
        await second.expect("call_result")


if __name__ == "__main__":
    main()
