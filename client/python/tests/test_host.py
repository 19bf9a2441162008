"""Results and failures that a host sends for calls of all kinds of tools."""

import asyncio
import functools
import gc
import json
import time
from datetime import UTC, datetime, timedelta
from unittest import TestCase, main, mock

import grpc
from google.protobuf.duration_pb2 import Duration

from agentloop.v1 import tool_host_pb2 as pb
from agentloop.v1.types_pb2 import URL_OUTCOME_DONE
from agentloop_host import DONE, MAYBE, NONE, READ_ONLY, ContextItem, Host, Link, NoAnswer, Output, ToolFailed
from agentloop_host.host import FIRST_BACKOFF
from fake_server import HostTest, soon

ANYTHING = {"type": "object"}


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("not even this")


class Failures(HostTest):
    """Every exception of a tool is a failure of its call, and the host goes on."""

    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.raised: BaseException = ValueError("no")

        @self.host.tool(description="Raises.", schema=ANYTHING, effect=READ_ONLY)
        async def fail(call):
            raise self.raised

        self.run_host()

    async def failure(self, raised: BaseException) -> pb.CallFailed:
        self.raised = raised
        await self.connection.send_call("c1", "fail")
        failed = await self.connection.expect("call_failed")
        await self.connection.acknowledge("c1")
        return failed

    async def test_every_exception_is_a_failure(self):
        self.connection = await self.welcome()
        for raised, message in [
            (ValueError("no"), "ValueError: no"),
            (ValueError("half a \ud83d pair"), "ValueError: half a ? pair"),
            (SystemExit(3), "SystemExit: 3"),
            (KeyboardInterrupt(), "KeyboardInterrupt: "),
            (BaseException("base"), "BaseException: base"),
            (Unspeakable(), "Unspeakable: it does not say why"),
            (ToolFailed("half a \ud83d pair"), "half a ? pair"),
            (ToolFailed("odd", retryable="perhaps"), "odd"),
            (ToolFailed("odd", retry_delay=float("inf")), "odd"),
        ]:
            with self.subTest(message=message):
                failed = await self.failure(raised)
                self.assertEqual((failed.message, failed.effect), (message, MAYBE))
        self.assertEqual(self.host._running, 0)

    async def test_a_result_that_cannot_be_written_is_a_failure_of_a_tool_that_ran(self):
        result = None

        @self.host.tool(description="Gives.", schema=ANYTHING, effect=READ_ONLY)
        async def give(call):
            return result

        connection = await self.welcome()
        for result, message in [
            (object(), "TypeError: Object of type object"),
            (Output(structured=float("nan")), "ValueError: "),
            ({"x": float("nan")}, "ValueError: "),
            (Output(structured="half a \ud83d pair"), "UnicodeEncodeError: "),
        ]:
            await connection.send_call("c1", "give")
            failed = await connection.expect("call_failed")
            await connection.acknowledge("c1")
            self.assertTrue(failed.message.startswith("the result cannot be sent: " + message), failed.message)
            self.assertEqual(failed.effect, DONE)

    async def test_a_failure_is_cut_to_the_bounds_of_the_contract(self):
        self.connection = await self.welcome()
        failed = await self.failure(ToolFailed("ä" * 50_000, effect=NONE))
        self.assertEqual((len(failed.message.encode()), failed.effect), (64 << 10, NONE))
        for delay, told in [(timedelta(seconds=-5), 0), (timedelta(seconds=5), 5), (timedelta.max, 7 * 86_400)]:
            failed = await self.failure(ToolFailed("later", retryable=True, retry_delay=delay))
            self.assertEqual((failed.retryable, failed.retry_delay.seconds), (True, told))


class Calls(HostTest):
    async def asyncSetUp(self):
        await super().asyncSetUp()
        self.leave = asyncio.Semaphore(0)
        self.began = 0

        @self.host.tool(description="Says it back.", schema=ANYTHING, effect=READ_ONLY)
        async def echo(call, text, times=1):
            return text * times

        @self.host.tool(description="Waits.", schema=ANYTHING, effect=READ_ONLY)
        async def wait(call):
            self.began += 1
            await self.leave.acquire()
            return f"waited {self.began}"

        self.run_host()

    async def test_text_that_is_no_unicode_is_a_result(self):
        connection = await self.welcome()
        await connection.send_call("c1", "echo", text="half a \ud83d pair")
        self.assertEqual((await connection.expect("call_result")).output, "half a ? pair")

    async def test_a_result_that_the_server_refuses_does_not_come_again(self):
        first = await self.welcome()
        await first.send_call("c1", "echo", text="malformed")
        await first.expect("call_result")
        await first.send_call("c2", "echo", text="good")
        await first.expect("call_result")
        words = "call_result.images: " + "ä" * 5000
        await first.send(protocol_error=pb.ProtocolError(message=words, call_id="c1"))
        first.end(grpc.StatusCode.INVALID_ARGUMENT)

        second = await self.welcome()
        failed = await second.expect("call_failed")
        self.assertEqual((failed.call_id, failed.lease_token, failed.effect), ("c1", "lease-c1", DONE))
        self.assertTrue(failed.message.startswith("the server refused the result: call_result.images: ää"))
        self.assertLess(len(failed.message.encode()), 4200)
        self.assertEqual((await second.expect("call_result")).output, "good")

    async def test_the_message_of_a_rejection_is_cut(self):
        connection = await self.welcome()
        for name in ["ä" * 5000, "\ud83d" * 5000]:
            await connection.offer("c1", "echo", text="x", **{name: 1})
            rejected = await connection.expect("call_rejected")
            self.assertEqual(rejected.reason, pb.REJECT_REASON_BAD_ARGUMENTS)
            self.assertLessEqual(len(rejected.message.encode()), 4096)

    async def test_a_call_with_another_idempotency_key_is_another_call(self):
        connection = await self.welcome()
        await connection.send_call("c1", "wait")
        await connection.offer("c1", "wait", idempotency_key="other")
        self.assertEqual((await connection.expect("call_rejected")).reason, pb.REJECT_REASON_BUSY)
        self.leave.release()
        self.assertEqual((await connection.expect("call_result")).output, "waited 1")
        await connection.offer("c1", "wait")
        self.assertEqual((await connection.expect("call_result")).output, "waited 1", "from the known result")

        await connection.send_call("c1", "wait", idempotency_key="other")
        self.leave.release()
        self.assertEqual((await connection.expect("call_result")).output, "waited 2")

    async def test_a_server_that_falls_silent_is_left(self):
        often = Duration(nanos=50_000_000)
        frozen = await self.welcome(heartbeat_interval=often)
        await frozen.send_call("c1", "wait")
        await frozen.send(ping=pb.Ping(nonce=7))
        while (said := await frozen.next()).WhichOneof("frame") != "pong":
            pass
        self.assertEqual(said.pong.nonce, 7)
        _, hello = await self.accept()
        self.assertEqual([call.call_id for call in hello.calls_in_hand], ["c1"], "the call goes on")

    async def test_a_host_that_stood_still_leaves_before_it_handles_a_frame_that_waited(self):
        stale = await self.welcome(heartbeat_interval=Duration(seconds=60))
        await stale.send_call("c1", "wait")
        await stale.send(ping=pb.Ping(nonce=7))
        await stale.expect("pong")
        woken_at = time.monotonic() + 121
        with mock.patch("agentloop_host.connection.monotonic", lambda: woken_at):
            await stale.offer("c2", "wait")
            fresh, hello = await self.accept()
        self.assertEqual([call.call_id for call in hello.calls_in_hand], ["c1"], "c1 goes on, and c2 was not begun")
        await fresh.send(welcome=pb.Welcome(protocol_version=1))
        await fresh.send_call("c3", "echo", text="here")
        self.assertEqual((await fresh.expect("call_result")).output, "here")

    async def test_a_host_waits_as_long_as_the_server_asks(self):
        wait = timedelta(seconds=4 * FIRST_BACKOFF)  # longer than the waits that the host itself would choose
        for welcome in (False, True):
            connection = await self.welcome() if welcome else (await self.accept())[0]
            asked = time.monotonic()
            await connection.send(go_away=pb.GoAway(reconnect_after=wait, reason="a restart"))
            connection.end(grpc.StatusCode.UNAVAILABLE)
            following, _ = await self.accept()
            self.assertGreaterEqual(time.monotonic() - asked, wait.total_seconds(), f"welcome: {welcome}")
            following.end(grpc.StatusCode.UNAVAILABLE)

    async def test_a_server_without_pings_is_not_left(self):
        quiet = await self.welcome(heartbeat_interval=Duration(nanos=20_000_000))
        beats = 0
        while beats < 8:  # four times the silence after which a server that sends pings is left
            beats += (await quiet.next()).WhichOneof("frame") == "heartbeat"
        await quiet.send_call("c1", "echo", text="here")
        self.assertEqual((await quiet.expect("call_result")).output, "here")

    async def test_a_host_with_too_many_unacknowledged_results_accepts_no_calls(self):
        for bound, most in [("MAX_UNACKNOWLEDGED", 2), ("MAX_UNACKNOWLEDGED_BYTES", 2_000)]:
            with self.subTest(bound=bound), mock.patch(f"agentloop_host.host.{bound}", most):
                connection = await self.welcome()
                for call_id in ("c1", "c2"):
                    await connection.send_call(call_id, "echo", text="x" * 1_000)
                    await connection.expect("call_result")
                await connection.offer("c3", "echo", text="x")
                rejected = await connection.expect("call_rejected")
                self.assertEqual(rejected.reason, pb.REJECT_REASON_BUSY)
                await connection.acknowledge("c1")
                credit = (await connection.next()).credit
                self.assertEqual(credit.total, 3 + 4)  # all calls that came, and room for four
                await connection.send_call("c3", "echo", text="x")
                await connection.expect("call_result")
                await connection.acknowledge("c2")
                await connection.acknowledge("c3")
                connection.end(grpc.StatusCode.UNAVAILABLE)

    async def test_a_lost_connection_leaves_no_task_behind(self):
        complaints = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
        for _ in range(3):
            connection = await self.welcome()
            self.assertEqual((await connection.next()).WhichOneof("frame"), "credit")
            connection.end(grpc.StatusCode.UNAVAILABLE)
        await self.accept()
        gc.collect()
        self.assertEqual(complaints, [])


class Questions(HostTest):
    """Questions without an answer."""

    async def answered(self, ask, **response) -> str:
        """The result of a call that asks, after this answer."""
        self.host._tools.pop("question", None)

        @self.host.tool(description="Asks.", schema=ANYTHING, effect=READ_ONLY)
        async def question(call):
            try:
                return await ask(call)
            except NoAnswer as why:
                return str(why)

        await self.connection.send_call("c1", "question")
        if response:
            asked = await self.connection.expect("need_input")
            answer = pb.InputResponse(call_id="c1", input_id=asked.input_id, **response)
            await self.connection.send(input_response=answer)
        result = await self.connection.expect("call_result")
        await self.connection.acknowledge("c1")
        return result.output

    async def test_an_answer_of_another_kind_does_not_fit(self):
        self.run_host()
        self.connection = await self.welcome()
        none = pb.InputSelection()
        for ask, response in [
            (lambda call: call.visit("Pay", ""), {"text": "yes"}),
            (lambda call: call.choose("Which?", ["a"]), {"text": "yes"}),
            (lambda call: call.choose("Which?", ["a"]), {"selection": none}),
            (lambda call: call.choose_several("Which?", ["a"]), {"form_json": "{}"}),
            (lambda call: call.fill_in("Who?", {}), {"url": URL_OUTCOME_DONE}),
            (lambda call: call.ask("Which?"), {"selection": none}),
        ]:
            self.assertEqual(await self.answered(ask, **response), "the answer does not fit the question")

    async def test_a_question_of_text_that_is_no_unicode_is_asked(self):
        self.run_host()
        self.connection = await self.welcome()

        @self.host.tool(description="Asks.", schema=ANYTHING, effect=READ_ONLY)
        async def doubt(call):
            return await call.choose("half a \ud83d pair", {"a": "\ud83d", "b": "B"}, name="n\ud83d")

        await self.connection.send_call("c1", "doubt")
        asked = await self.connection.expect("need_input")
        self.assertEqual((asked.question, asked.input_id, asked.options[0].label), ("half a ? pair", "n?", "?"))

    async def test_a_timeout_that_no_duration_holds_is_refused(self):
        self.run_host()
        self.connection = await self.welcome()
        for timeout in timedelta.max, timedelta(), timedelta(seconds=-1):
            said = await self.answered(lambda call: call.ask("?", timeout=timeout))
            self.assertEqual(said, "a timeout is more than zero, and at most 3652500 days")

    async def test_what_the_server_refuses_does_not_come_again(self):
        @self.host.tool(description="Asks.", schema=ANYTHING, effect=READ_ONLY)
        async def ask(call):
            said = []
            for asked in call.ask("Which?"), call.save_resume_state(b"state"):
                try:
                    await asked
                except NoAnswer as why:
                    said.append(str(why))
            return said

        self.run_host()
        connection = await self.welcome()
        await connection.send_call("c1", "ask")
        await connection.expect("need_input")
        await connection.send(protocol_error=pb.ProtocolError(message="need_input.timeout: bad", call_id="c1"))
        await connection.expect("progress")
        await connection.send(protocol_error=pb.ProtocolError(message="too many", call_id="c1"))
        self.assertEqual(
            json.loads((await connection.expect("call_result")).output),
            [
                "no answer: the server refused the question: need_input.timeout: bad",
                "the server refused the resume state: too many",
            ],
        )

    async def test_one_attempt_saves_a_bounded_number_of_states(self):
        self.run_host()
        self.connection = await self.welcome()

        async def save(call):
            call._states = 256
            await call.save_resume_state(b"state")

        said = await self.answered(save)
        self.assertEqual(said, "one attempt of a call saves 256 resume states at most")


class DeclarationsTest(TestCase):
    def setUp(self):
        self.host = Host("127.0.0.1:1")

    def tool(self, function, schema=ANYTHING):
        return self.host.tool(description="Does it.", schema=schema, effect=READ_ONLY)(function)

    def test_a_name_is_declared_once(self):
        async def one(*_):
            pass

        declare = self.tool, self.host.hook(), self.host.context_source(), self.host.planner()
        for again in declare:
            again(one)
            with self.assertRaisesRegex(ValueError, "'one' already"):
                again(one)

    def test_a_function_that_is_not_async_is_refused(self):
        def one(*_):
            pass

        for declare in self.tool, self.host.hook(), self.host.context_source(), self.host.planner():
            with self.assertRaisesRegex(TypeError, "one must be declared with `async def`"):
                declare(one)

        async def two(call):
            pass

        @functools.wraps(two)
        def wrapped(call):
            return two(call)

        self.tool(wrapped)

    def test_an_asynchronous_generator_is_refused(self):
        async def one(call):
            yield 1

        with self.assertRaisesRegex(TypeError, "one must return its result, not yield it"):
            self.tool(one)

    def test_a_callable_without_a_name_is_given_one(self):
        async def two(more, call):
            pass

        class Three:
            async def __call__(self, call):
                pass

        for unnamed in functools.partial(two, 1), Three():
            for declare in self.tool, self.host.hook(), self.host.context_source(), self.host.planner():
                with self.assertRaisesRegex(TypeError, "has no name of its own: give `name`"):
                    declare(unnamed)
            name = type(unnamed).__name__
            self.host.tool(name=name, description="Does it.", schema=ANYTHING, effect=READ_ONLY)(unnamed)
        self.assertEqual(set(self.host._tools), {"partial", "Three"})

    def test_no_argument_has_the_name_of_the_parameter_for_the_call(self):
        schema = {"type": "object", "properties": {"call": {"type": "string"}}}

        async def dial(call):
            pass

        async def ring(context, call):
            pass

        async def hang_up(call, /, **arguments):
            pass

        with self.assertRaisesRegex(ValueError, "dial: the parameter 'call' is the call"):
            self.tool(dial, schema)
        self.tool(ring, schema)
        self.tool(hang_up, schema)


class Deadlines(HostTest):
    async def test_a_deadline_is_kept_by_the_time_left_and_not_by_the_servers_clock(self):
        left: list[timedelta] = []

        @self.host.tool(description="Asks for the time.", schema=ANYTHING, effect=READ_ONLY)
        async def ask(call):
            left.append(call.deadline - datetime.now(UTC))

        self.run_host()
        connection = await self.welcome()
        hour, minute = timedelta(hours=1), timedelta(minutes=1)
        # An older server does not say how much time is left.
        for skew, time_left, expected in [(-hour, minute, minute), (hour, minute, minute), (hour, None, hour)]:
            with self.subTest(skew=skew, time_left=time_left):
                name = f"c{len(left)}"
                request = pb.CallRequest(call_id=name, attempt=1, lease_token=name, tool="ask", arguments_json="{}")
                request.deadline.FromDatetime(datetime.now(UTC) + skew)
                if time_left is not None:
                    request.time_left.FromTimedelta(time_left)
                request.idempotency_key = name
                await connection.send(call_request=request)
                await connection.expect("call_accepted")
                await connection.expect("call_result")
                self.assertTrue(expected / 2 < left[-1] <= expected, left[-1])


class Callers(HostTest):
    async def test_a_tool_knows_who_started_the_run(self):
        @self.host.tool(description="Tells who asks.", schema=ANYTHING, effect=READ_ONLY)
        async def who(call):
            return f"{call.caller.name} of {call.caller.tenant}"

        self.run_host()
        connection = await self.welcome()
        request = pb.CallRequest(call_id="c1", attempt=1, lease_token="l", tool="who", arguments_json="{}")
        request.idempotency_key = "c1"
        request.caller.name, request.caller.tenant = "ada", "acme"
        await connection.send(call_request=request)
        await connection.expect("call_accepted")
        self.assertEqual((await connection.expect("call_result")).output, "ada of acme")


class ResumeStates(HostTest):
    """A call leaves a state, and its next attempt goes on from it."""

    async def asyncSetUp(self):
        await super().asyncSetUp()

        @self.host.tool(description="Orders.", schema=ANYTHING, effect=READ_ONLY)
        async def order(call):
            which = await call.ask("Which?", name="which", resume_state=b"ordered")
            return f"{call.resume_state} {which}"

        @self.host.tool(description="Saves.", schema=ANYTHING, effect=READ_ONLY)
        async def save(call):
            await call.save_resume_state(b"one")
            await call.save_resume_state(b"two")
            return "saved"

        @self.host.tool(description="Saves two at the same time.", schema=ANYTHING, effect=READ_ONLY)
        async def save_both(call):
            await asyncio.gather(call.save_resume_state(b"one"), call.save_resume_state(b"two"))
            return "saved"

        @self.host.tool(description="Shops.", schema=ANYTHING, effect=READ_ONLY)
        async def shop(call, names):
            for name in names:
                await call.ask("Your name?", name=name)
            items = [await call.ask("Next item?") for _ in range(2)]
            return items + [await call.ask("Buy them?", name="buy", resume_state=b"asked")]

        @self.host.tool(description="Asks.", schema=ANYTHING, effect=READ_ONLY)
        async def fill_in(call):
            who = await call.fill_in("Who?", {"type": "object"})
            paid = await call.visit("Pay", "https://pay.example")
            link = Link(url="https://a.example")
            return Output(structured=[who, paid, await call.ask("More?", allow_empty=True)], links=[link])

        self.run_host()

    async def test_the_next_attempt_goes_on_with_the_answer(self):
        connection = await self.welcome()
        await connection.send_call("c1", "order")
        question = await connection.expect("need_input")
        self.assertEqual((question.resume_state, question.input_id), (b"ordered", "which"))
        await connection.send(lease_lost=pb.LeaseLost(call_id="c1", attempt=1))
        answer = pb.InputResponse(call_id="c1", input_id="which", text="red")
        again = pb.CallRequest(call_id="c1", attempt=2, tool="order", idempotency_key="c1", lease_token="l2")
        again.resume_state = b"ordered"
        again.answers.append(answer)
        await connection.send(call_request=again)
        await connection.expect("call_accepted")
        result = await connection.expect("call_result")
        self.assertEqual((result.output, result.attempt), ("b'ordered' red", 2))

    async def test_an_unnamed_question_has_the_same_number_in_each_attempt(self):
        # As many answers are known as an attempt may ask questions: they count for the numbers alone.
        names = [f"name-{number}" for number in range(1, 17)]
        connection = await self.welcome()
        answers = [pb.InputResponse(call_id="c1", input_id=name, text="Ada") for name in [*names, "buy"]]
        again = pb.CallRequest(call_id="c1", attempt=2, tool="shop", idempotency_key="c1", lease_token="l2")
        again.arguments_json = json.dumps({"names": names})
        again.answers.extend(answers)
        await connection.send(call_request=again)
        await connection.expect("call_accepted")
        for number, item in (17, "milk"), (18, "bread"):
            question = await connection.expect("need_input")
            self.assertEqual(question.input_id, f"question-{number}")
            await connection.send(input_response=pb.InputResponse(call_id="c1", input_id=question.input_id, text=item))
        self.assertEqual((await connection.expect("call_result")).output, '["milk","bread","Ada"]')

    async def test_a_state_is_repeated_until_it_is_acknowledged(self):
        first = await self.welcome()
        await first.send_call("c1", "save")
        one = await first.expect("progress")
        self.assertEqual((one.resume_state, one.resume_no), (b"one", 1))
        first.end(grpc.StatusCode.UNAVAILABLE)
        second = await self.welcome()
        self.assertEqual(await second.expect("progress"), one)
        await second.send(progress_ack=pb.ProgressAck(call_id="c1", attempt=1, resume_no=1))
        two = await second.expect("progress")
        self.assertEqual((two.resume_state, two.resume_no), (b"two", 2))
        await second.send(progress_ack=pb.ProgressAck(call_id="c1", attempt=1, resume_no=2))
        self.assertEqual((await second.expect("call_result")).output, "saved")

    async def test_states_that_are_saved_at_the_same_time_are_acknowledged_together(self):
        first = await self.welcome()
        await first.send_call("c1", "save_both")
        self.assertEqual([(await first.expect("progress")).resume_no for _ in range(2)], [1, 2])
        first.end(grpc.StatusCode.UNAVAILABLE)
        second = await self.welcome()
        self.assertEqual((await second.expect("progress")).resume_no, 2)
        await second.send(progress_ack=pb.ProgressAck(call_id="c1", attempt=1, resume_no=2))
        self.assertEqual((await second.expect("call_result")).output, "saved")

    async def test_the_last_checkpoint_is_repeated_after_a_reconnect(self):
        leave, saved = asyncio.Semaphore(0), asyncio.Semaphore(0)

        @self.host.tool(description="Saves.", schema=ANYTHING, effect=READ_ONLY)
        async def advance(call):
            for checkpoint in (b"one", b"two"):
                await leave.acquire()
                await call.progress("saved", checkpoint=checkpoint)
                saved.release()
            await leave.acquire()
            return "done"

        async def save():
            leave.release()
            await soon(saved.acquire())

        first = await self.welcome()
        await first.send_call("c1", "advance")
        await save()
        self.assertEqual((await first.expect("progress")).checkpoint, b"one")
        first.end(grpc.StatusCode.UNAVAILABLE)
        second, _ = await self.accept()
        await save()  # not welcome yet: nothing can be sent
        await second.send(welcome=pb.Welcome(protocol_version=1))
        self.assertEqual((await second.expect("progress")).checkpoint, b"two")
        leave.release()
        await second.expect("call_result")
        second.end(grpc.StatusCode.UNAVAILABLE)
        await (await self.welcome()).expect("call_result")  # a call that has ended has no checkpoint

    async def test_every_kind_of_question_has_metadata(self):
        @self.host.tool(description="Asks.", schema=ANYTHING, effect=READ_ONLY)
        async def kinds(call):
            await call.ask("Text?", metadata={"kind": "tëxt"})
            await call.choose("One?", ["a"], metadata={"kind": "one"})
            await call.choose_several("Several?", ["a"], metadata={"kind": "several"})
            await call.fill_in("Form?", {"type": "object"}, metadata={"kind": "form"})
            await call.visit("Visit?", "https://pay.example", metadata='{"kind":"visit"}')

        connection = await self.welcome()
        await connection.send_call("c1", "kinds")
        one = pb.InputSelection(option_ids=["a"])
        for metadata, answer in [
            ('{"kind": "tëxt"}', {"text": "yes"}),
            ('{"kind": "one"}', {"selection": one}),
            ('{"kind": "several"}', {"selection": one}),
            ('{"kind": "form"}', {"form_json": "{}"}),
            ('{"kind":"visit"}', {"url": URL_OUTCOME_DONE}),
        ]:
            question = await connection.expect("need_input")
            self.assertEqual(question.metadata_json, metadata)
            response = pb.InputResponse(call_id="c1", input_id=question.input_id, **answer)
            await connection.send(input_response=response)
        await connection.expect("call_result")

    async def test_forms_visits_and_empty_texts(self):
        connection = await self.welcome()
        await connection.send_call("c1", "fill_in")
        for kind, answer in [
            ("form_schema_json", {"form_json": '{"name":"Ada"}'}),
            ("url", {"url": URL_OUTCOME_DONE}),
            ("allow_empty", {"text": ""}),
        ]:
            question = await connection.expect("need_input")
            self.assertTrue(getattr(question, kind))
            response = pb.InputResponse(call_id="c1", input_id=question.input_id, **answer)
            await connection.send(input_response=response)
        result = await connection.expect("call_result")
        self.assertEqual((result.output, result.structured_json), ("", '[{"name":"Ada"},true,""]'))
        self.assertEqual(result.links[0].url, "https://a.example")


class Bounds(HostTest):
    """No frame is larger than the server accepts."""

    BOUND = 65_536

    async def asyncSetUp(self):
        await super().asyncSetUp()

        @self.host.tool(description="Says it back.", schema=ANYTHING, effect=READ_ONLY)
        async def echo(call, text, times):
            return text * times

        @self.host.tool(description="Fails.", schema=ANYTHING, effect=READ_ONLY)
        async def fail(call):
            raise ToolFailed("ä" * 65_536, effect=NONE)

        @self.host.tool(description="Talks.", schema=ANYTHING, effect=READ_ONLY)
        async def talk(call):
            await call.output("x" * self.BOUND)
            await call.progress("saved", checkpoint=bytes(self.BOUND))
            try:
                await call.ask("?" * self.BOUND)
            except NoAnswer as why:
                return str(why)

        @self.host.context_source()
        async def note(request, run):
            return "a whole text"

        @self.host.context_source()
        async def notes(request, run):
            return [ContextItem(text="x" * self.BOUND)]

        self.run_host()

    def assert_fits(self, **frame):
        self.assertLessEqual(pb.ConnectRequest(**frame).ByteSize(), self.BOUND)

    async def test_a_larger_result_becomes_a_failure(self):
        connection = await self.welcome(max_frame_bytes=self.BOUND)
        room = self.BOUND - 24
        await connection.send_call("c1", "echo", text="x", times=room)
        result = await connection.expect("call_result")
        self.assertEqual(pb.ConnectRequest(call_result=result).ByteSize(), self.BOUND, "to the last byte")
        await connection.send_call("c2", "echo", text="x", times=room + 1)
        failed = await connection.expect("call_failed")
        self.assertEqual(failed.message, "the result has 65537 bytes with its frame; the server takes 65536")
        self.assertEqual((failed.effect, failed.retryable), (DONE, False))

    async def test_a_larger_failure_keeps_its_beginning(self):
        connection = await self.welcome(max_frame_bytes=self.BOUND)
        await connection.send_call("c1", "fail")
        failed = await connection.expect("call_failed")
        self.assert_fits(call_failed=failed)
        self.assertEqual((failed.effect, len(failed.message) > 32_000), (NONE, True))

    async def test_an_older_result_is_cut_to_the_bound_of_a_new_server(self):
        first = await self.welcome()
        await first.send_call("c1", "echo", text="x", times=self.BOUND)
        await first.expect("call_result")
        first.end(grpc.StatusCode.UNAVAILABLE)
        second = await self.welcome(max_frame_bytes=self.BOUND)
        self.assertIn("the server takes 65536", (await second.expect("call_failed")).message)

    async def test_output_is_split_and_other_large_frames_are_dropped(self):
        connection = await self.welcome(max_frame_bytes=self.BOUND)
        await connection.send_call("c1", "talk")
        sizes = []
        while sum(sizes) < self.BOUND:
            chunk = await connection.expect("output_chunk")
            self.assert_fits(output_chunk=chunk)
            sizes.append(len(chunk.data))
            self.assertEqual(chunk.chunk_seq, len(sizes))
        progress = await connection.expect("progress")
        self.assertEqual((progress.message, progress.HasField("checkpoint")), ("saved", False))
        self.assertIn("65536 bytes", (await connection.expect("call_result")).output)

    async def test_a_source_may_give_one_text(self):
        connection = await self.welcome()
        question = pb.ExtensionRequest(request_id="q", name="note", context=pb.ContextRequest())
        await connection.send(extension_request=question)
        response = await connection.expect("extension_response")
        self.assertEqual([item.text for item in response.context.items], ["a whole text"])

    async def test_an_extension_out_of_time_gave_no_answer(self):
        @self.host.hook(name="slow")
        async def slow(request, run):
            await asyncio.sleep(60)

        @self.host.hook(name="hasty")
        async def hasty(request, run):
            raise TimeoutError("of its own")

        connection = await self.welcome()
        for name, left, message in [
            ("slow", 0.01, "there was no answer in time"),
            ("hasty", 60, "TimeoutError: of its own"),
        ]:
            question = pb.ExtensionRequest(request_id="q", name=name, hook=pb.HookRequest())
            question.time_left.FromTimedelta(timedelta(seconds=left))
            await connection.send(extension_request=question)
            response = await connection.expect("extension_response")
            self.assertEqual(response.failure.message, message)

    async def test_a_larger_response_of_an_extension_becomes_a_failure(self):
        connection = await self.welcome(max_frame_bytes=self.BOUND)
        question = pb.ExtensionRequest(request_id="q", name="notes", context=pb.ContextRequest())
        await connection.send(extension_request=question)
        response = await connection.expect("extension_response")
        self.assertIn("the server takes 65536", response.failure.message)


if __name__ == "__main__":
    main()
