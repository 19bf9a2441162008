"""A host that the server refuses: it ends where another attempt would end the same way, and only there."""

from unittest import main

import grpc

from agentloop.v1 import tool_host_pb2 as pb
from agentloop_host import READ_ONLY, HostRefused
from fake_server import HostTest, soon


class Refused(HostTest):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.stopped = False

        @self.host.tool(description="Waits.", schema={"type": "object"}, effect=READ_ONLY)
        async def wait(call):
            try:
                await call.ask("How long?")
            finally:
                self.stopped = True

        self.run_host()

    async def asyncTearDown(self):
        self.assertTrue(self.running.done(), "the host still runs")
        await self._server.stop(None)

    async def refusal(self) -> str:
        with self.assertRaises(HostRefused) as raised:
            await soon(self.running)
        return str(raised.exception)

    async def test_before_the_welcome_by_a_lasting_status(self):
        # A status that may pass is no refusal.
        for code in [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL]:
            connection, _ = await self.accept()
            connection.end(code)
        connection, _ = await self.accept()
        connection.end(grpc.StatusCode.UNAUTHENTICATED)
        self.assertRegex(await self.refusal(), "^the server refused the host: UNAUTHENTICATED: ")

    async def test_by_a_protocol_error_in_place_of_a_welcome(self):
        connection, _ = await self.accept()
        await connection.send(protocol_error=pb.ProtocolError(message="hello.host_id: no id"))
        self.assertEqual(await self.refusal(), "the server refused the host: hello.host_id: no id")

    async def test_after_the_welcome_where_another_host_took_its_id(self):
        connection = await self.welcome()
        await connection.send_call("c1", "wait")
        await connection.expect("need_input")
        message = "another connection with this host id took this one's place"
        await connection.send(protocol_error=pb.ProtocolError(message=message))
        connection.end(grpc.StatusCode.FAILED_PRECONDITION)
        words = 'the server refused the host: another host took the id "host-1"; give each host its own id'
        self.assertEqual(await self.refusal(), words)
        self.assertTrue(self.stopped, "the call still runs")

    async def test_after_the_welcome_by_its_credential_alone(self):
        first = await self.welcome()
        first.end(grpc.StatusCode.INVALID_ARGUMENT)
        second = await self.welcome()
        await second.send_call("c1", "wait")
        await second.expect("need_input")
        second.end(grpc.StatusCode.PERMISSION_DENIED)
        self.assertIn("PERMISSION_DENIED", await self.refusal())
        self.assertTrue(self.stopped, "the call still runs")


if __name__ == "__main__":
    main()
