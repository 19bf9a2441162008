// Results and failures that a host sends for calls of all kinds of tools.

import { status } from "@grpc/grpc-js";
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { afterEach, beforeEach, describe, test } from "node:test";
import {
  CallFailed,
  CallRequest,
  ExtensionRequest,
  type InputResponse,
  ProgressAck,
  RejectReason,
} from "../gen/agentloop/v1/tool_host.js";
import { UrlOutcome } from "../gen/agentloop/v1/types.js";
import { ResumeStates } from "../host/ask.js";
import { type Frame, sizeOf } from "../host/frame.js";
import { AttemptEffect, EffectClass, Host, NoAnswer, Output, ToolFailed } from "../host/index.js";
import { Bench, type Connection } from "./fake_server.js";

const { NONE, MAYBE, DONE } = AttemptEffect;

let bench: Bench;
beforeEach(async () => void (bench = await Bench.start()));
afterEach(() => bench.stop());

test("what the server refuses of a running call does not come again", async () => {
  const options = { name: "ask", description: "Asks.", schema: { type: "object" }, effect: EffectClass.READ_ONLY };
  const refused = (error: unknown) => (error instanceof NoAnswer ? error.message : assert.fail("not refused"));
  bench.host.tool(options, async (call) => {
    const question = await call.ask("Which?", { timeoutMs: 0.29 * 3_600_000 }).catch(refused);
    const state = await call.saveResumeState(Buffer.from("state")).catch(refused);
    const timeouts = [0, -1, NaN, Infinity, 315_576_000_001_000].map((timeoutMs) => call.ask("?", { timeoutMs }).catch(refused));
    return [question, state, ...new Set(await Promise.all(timeouts))];
  });
  bench.run();
  const connection = await bench.welcome();
  await connection.sendCall("c1", "ask");
  assert.deepEqual((await connection.expect("needInput")).timeout, { seconds: 1044n, nanos: 0 });
  connection.send({ $case: "protocolError", value: { message: "need_input.timeout: bad", callId: "c1" } });
  await connection.expect("progress");
  connection.send({ $case: "protocolError", value: { message: "too many", callId: "c1" } });
  assert.deepEqual(JSON.parse((await connection.expect("callResult")).output), [
    "no answer: the server refused the question: need_input.timeout: bad",
    "the server refused the resume state: too many",
    "a timeout is more than zero, and at most 315576000000 s",
  ]);
});

test("one attempt saves a bounded number of states", async () => {
  const states = new ResumeStates(new AbortController().signal, () => true);
  const saved = Array.from({ length: 256 }, () => states.save(Buffer.from("")));
  await assert.rejects(states.save(Buffer.from("")), /256 resume states at most/);
  states.onAck(ProgressAck.fromPartial({ resumeNo: 256n }));
  await Promise.all(saved);
});

test("a name is declared once", () => {
  const declare = [
    () => bench.tool("a", () => 1),
    () => bench.host.hook({ name: "a", points: [] }, async () => undefined),
    () => bench.host.contextSource({ name: "a" }, async () => []),
    () => bench.host.planner({ name: "a" }, async () => ({})),
  ];
  for (const again of declare) {
    again();
    assert.throws(again, /^Error: the host has a (tool|hook|contextSource|planner) "a" already$/);
  }
});

test("an empty host id is none", () => {
  assert.notEqual(new Host({ server: bench.server, hostId: "" }).hostId, "");
});

test("functions of the options that fail do not end the host", async () => {
  const said = ["ä".repeat(1000), 1 as never, "end"];
  const host = new Host({
    server: bench.server,
    onReady: async () => assert.fail("not ready"),
    status: () => said.shift() ?? assert.fail("no status"),
  });
  const running = host.run();
  const connection = await bench.welcome({ heartbeatInterval: { seconds: 0n, nanos: 20_000_000 } });
  const texts = [];
  for (let count = 0; count < 4; count++) texts.push(await connection.status());
  assert.deepEqual(texts, ["ä".repeat(512), "", "end", ""]);
  host.drain();
  assert.equal(await running, true);
});

describe("every error of a tool is a failure of its call", () => {
  let thrown: unknown;
  let connection: Connection;

  beforeEach(async () => {
    bench.tool("fail", () => {
      throw thrown;
    });
    bench.tool("give", () => thrown);
    bench.run();
    connection = await bench.welcome();
  });

  async function failure(what: unknown, tool = "fail"): Promise<CallFailed> {
    thrown = what;
    await connection.sendCall("c1", tool);
    const failed = await connection.expect("callFailed");
    connection.acknowledge("c1");
    return failed;
  }

  test("a tool that throws any value", async () => {
    for (const [what, message] of [
      [new Error("no"), "Error: no"],
      [undefined, "undefined"],
      [Object.create(null), "it does not say why"],
      [new Error("half a \ud83d pair"), "Error: half a \ufffd pair"],
      [new ToolFailed("odd", { retryDelayMs: "soon" as never, effect: "none" as never }), "odd"],
      [new ToolFailed("odd", { retryDelayMs: Symbol() as never }), "TypeError: Cannot convert a Symbol value to a number"],
    ] as const) {
      const failed = await failure(what);
      assert.deepEqual([failed.message, failed.effect], [message, MAYBE]);
    }
  });

  test("a result that cannot be written", async () => {
    for (const [what, words] of [
      [1n, /BigInt/],
      [{ toJSON: () => assert.fail("not this") }, /not this/],
      [new Output("", [], { structured: () => 1 }), /the result cannot be sent/],
    ] as const) {
      const { message, effect } = await failure(what, "give");
      assert.match(message, words);
      assert.equal(effect, DONE, "the tool ran");
    }
  });

  test("a failure is cut to the bounds of the contract", async () => {
    const long = await failure(new ToolFailed("ä".repeat(50_000), { effect: NONE }));
    assert.deepEqual([Buffer.byteLength(long.message), long.effect], [64 << 10, NONE]);
    for (const [retryDelayMs, told] of [
      [-5000, undefined],
      [NaN, undefined],
      [5500, { seconds: 5n, nanos: 500_000_000 }],
      [0.29 * 3_600_000, { seconds: 1044n, nanos: 0 }],
      [Infinity, { seconds: 604_800n, nanos: 0 }],
    ] as const) {
      const failed = await failure(new ToolFailed("later", { retryable: true, retryDelayMs }));
      assert.deepEqual([failed.retryable, failed.retryDelay], [true, told]);
    }
  });
});

describe("calls", () => {
  let leave: () => void;
  let began = 0;

  beforeEach(() => {
    began = 0;
    bench.tool("echo", ({ text }: { text: string }) => text);
    bench.tool("wait", async () => {
      const call = ++began;
      await new Promise<void>((resolve) => (leave = resolve));
      return `waited ${call}`;
    });
    bench.run();
  });

  test("a server that falls silent is left", async () => {
    const frozen = await bench.welcome({ heartbeatInterval: { seconds: 0n, nanos: 50_000_000 } });
    await frozen.sendCall("c1", "wait");
    frozen.send({ $case: "ping", value: { nonce: 7n } });
    assert.equal((await frozen.expect("pong")).nonce, 7n);
    const [, hello] = await bench.accept();
    assert.deepEqual(hello.callsInHand.map(({ callId }) => callId), ["c1"], "the call goes on");
  });

  test("a host that stood still leaves before it handles a frame that waited", async ({ mock }) => {
    const stale = await bench.welcome({ heartbeatInterval: { seconds: 60n, nanos: 0 } });
    await stale.sendCall("c1", "wait");
    stale.send({ $case: "ping", value: { nonce: 7n } });
    await stale.expect("pong");
    const wokenAt = performance.now() + 121_000;
    const clock = mock.method(performance, "now", () => wokenAt);
    stale.offer("c2", "wait");
    const [fresh, hello] = await bench.accept();
    clock.mock.restore();
    assert.deepEqual(hello.callsInHand.map(({ callId }) => callId), ["c1"], "c1 goes on, and c2 was not begun");
    fresh.welcome({});
    await fresh.sendCall("c3", "echo", { args: { text: "here" } });
    assert.equal((await fresh.expect("callResult")).output, "here");
  });

  test("a host waits as long as the server asks", async () => {
    const waitMs = 400; // longer than the waits that the host itself would choose
    const goAway = { reconnectAfter: { seconds: 0n, nanos: waitMs * 1e6 }, reason: "a restart" };
    for (const welcome of [false, true]) {
      const connection = welcome ? await bench.welcome() : (await bench.accept())[0];
      const asked = performance.now();
      connection.send({ $case: "goAway", value: goAway });
      connection.end(status.UNAVAILABLE);
      const [next] = await bench.accept();
      const waited = performance.now() - asked;
      assert.ok(waited > waitMs - 2, `welcome: ${welcome}, waited ${waited} ms`); // timers round to milliseconds
      next.end(status.UNAVAILABLE);
    }
  });

  test("a host with too many unacknowledged results accepts no calls", async () => {
    const connection = await bench.welcome();
    for (let number = 0; number < 1024; number++) {
      await connection.sendCall(`c${number}`, "echo", { args: { text: "x" } });
      await connection.expect("callResult");
    }
    connection.offer("c", "echo", { args: { text: "x" } });
    assert.equal((await connection.expect("callRejected")).reason, RejectReason.BUSY);
    connection.acknowledge("c0");
    assert.equal(await connection.credit(), 1024n + 1n + 4n); // all calls that came, and room for four
    await connection.sendCall("c", "echo", { args: { text: "x" } });
  });

  test("a host with too large unacknowledged results accepts no calls", async () => {
    const connection = await bench.welcome();
    const text = "x".repeat(3 << 20);
    bench.tool("large", () => text);
    for (let number = 0; number < 22; number++) {
      await connection.sendCall(`c${number}`, "large");
      await connection.expect("callResult");
    }
    connection.offer("c", "large");
    assert.equal((await connection.expect("callRejected")).reason, RejectReason.BUSY);
  });

  test("a server without pings is not left", async () => {
    const quiet = await bench.welcome({ heartbeatInterval: { seconds: 0n, nanos: 20_000_000 } });
    await quiet.heartbeats(8); // four times the silence after which a server that sends pings is left
    await quiet.sendCall("c1", "echo", { args: { text: "here" } });
    assert.equal((await quiet.expect("callResult")).output, "here");
  });

  test("a result that the server refuses does not come again", async () => {
    const first = await bench.welcome();
    await first.sendCall("c1", "echo", { args: { text: "malformed" } });
    await first.expect("callResult");
    await first.sendCall("c2", "echo", { args: { text: "good" } });
    await first.expect("callResult");
    const message = `call_result.images: ${"ä".repeat(5000)}`;
    first.send({ $case: "protocolError", value: { message, callId: "c1" } });
    first.end(status.INVALID_ARGUMENT);

    const second = await bench.welcome();
    const failed = await second.expect("callFailed");
    assert.deepEqual([failed.callId, failed.leaseToken, failed.effect], ["c1", "lease-c1", DONE]);
    assert.match(failed.message, /^the server refused the result: call_result.images: ää/);
    assert.ok(Buffer.byteLength(failed.message) < 4200);
    assert.equal((await second.expect("callResult")).output, "good");
  });

  test("the message of a rejection is cut", async () => {
    const connection = await bench.welcome();
    connection.offer("c1", "ä".repeat(5000));
    const rejected = await connection.expect("callRejected");
    assert.equal(rejected.reason, RejectReason.UNKNOWN_TOOL);
    assert.ok(rejected.message.endsWith("ä") && Buffer.byteLength(rejected.message) <= 4096);
  });

  test("a call with another idempotency key is another call", async () => {
    const connection = await bench.welcome();
    await connection.sendCall("c1", "wait");
    connection.offer("c1", "wait", { idempotencyKey: "other" });
    assert.equal((await connection.expect("callRejected")).reason, RejectReason.BUSY);
    leave();
    assert.equal((await connection.expect("callResult")).output, "waited 1");
    connection.offer("c1", "wait");
    assert.equal((await connection.expect("callResult")).output, "waited 1", "from the known result");

    await connection.sendCall("c1", "wait", { idempotencyKey: "other" });
    leave();
    assert.equal((await connection.expect("callResult")).output, "waited 2");
  });
});

test("a deadline is kept by the time left, and not by the server's clock", async () => {
  const left: number[] = [];
  const schema = { type: "object" };
  const declared = { name: "ask", description: "Asks for the time.", schema, effect: EffectClass.READ_ONLY };
  bench.host.tool(declared, async (call) => {
    left.push((call.deadline?.getTime() ?? NaN) - Date.now());
    return "";
  });
  bench.run();
  const connection = await bench.welcome();
  const [minute, hour] = [60_000, 3_600_000];
  for (const [skew, timeLeft, expected] of [
    [-hour, { seconds: 60n, nanos: 0 }, minute],
    [hour, { seconds: 60n, nanos: 0 }, minute],
    [hour, undefined, hour], // an older server does not say how much time is left
  ] as const) {
    const callId = `c${left.length}`;
    const value = CallRequest.fromPartial({
      callId,
      attempt: 1,
      leaseToken: callId,
      idempotencyKey: callId,
      tool: "ask",
      argumentsJson: "{}",
      deadline: new Date(Date.now() + skew),
      timeLeft,
    });
    connection.send({ $case: "callRequest", value });
    await connection.expect("callAccepted");
    await connection.expect("callResult");
    const is = left.at(-1) ?? NaN;
    assert.ok(is > expected / 2 && is <= expected, `${is} ms`);
  }
});

test("a tool knows who started the run", async () => {
  const declared = { name: "who", description: "Tells who asks.", schema: { type: "object" }, effect: EffectClass.READ_ONLY };
  bench.host.tool(declared, async (call) => `${call.caller?.name} of ${call.caller?.tenant}`);
  bench.run();
  const connection = await bench.welcome();
  const value = CallRequest.fromPartial({
    callId: "c1",
    attempt: 1,
    leaseToken: "l",
    idempotencyKey: "c1",
    tool: "who",
    argumentsJson: "{}",
    caller: { name: "ada", tenant: "acme" },
  });
  connection.send({ $case: "callRequest", value });
  await connection.expect("callAccepted");
  assert.equal((await connection.expect("callResult")).output, "ada of acme");
});

describe("a call leaves a state, and its next attempt goes on from it", () => {
  const declared = (name: string) => ({
    name,
    description: "A tool.",
    schema: { type: "object" },
    effect: EffectClass.READ_ONLY,
  });

  test("with the answer to its question", async () => {
    bench.host.tool(declared("order"), async (call) => {
      const which = await call.ask("Which?", { name: "which", resumeState: Buffer.from("ordered") });
      return `${call.resumeState} ${which}`;
    });
    bench.run();
    const connection = await bench.welcome();
    await connection.sendCall("c1", "order");
    const question = await connection.expect("needInput");
    assert.deepEqual([`${question.resumeState}`, question.inputId], ["ordered", "which"]);
    connection.send({ $case: "leaseLost", value: { callId: "c1", attempt: 1 } });
    const value = CallRequest.fromPartial({
      callId: "c1",
      attempt: 2,
      leaseToken: "lease-2",
      idempotencyKey: "key-c1",
      tool: "order",
      argumentsJson: "{}",
      resumeState: Buffer.from("ordered"),
      answers: [{ callId: "c1", inputId: "which", response: { $case: "text", value: "red" } }],
    });
    connection.send({ $case: "callRequest", value });
    await connection.expect("callAccepted");
    const result = await connection.expect("callResult");
    assert.deepEqual([result.output, result.attempt], ["ordered red", 2]);
  });

  test("with unnamed questions that have the same number in each attempt", async () => {
    // As many answers are known as an attempt may ask questions: they count for the numbers alone.
    const names = Array.from({ length: 16 }, (_, at) => `name-${at + 1}`);
    bench.host.tool(declared("shop"), async (call) => {
      for (const name of names) await call.ask("Your name?", { name });
      const items = [await call.ask("Next item?"), await call.ask("Next item?")];
      return [...items, await call.ask("Buy them?", { name: "buy", resumeState: Buffer.from("asked") })];
    });
    bench.run();
    const connection = await bench.welcome();
    const answer = (inputId: string, value: string) =>
      ({ callId: "c1", inputId, response: { $case: "text", value } }) as const;
    const value = CallRequest.fromPartial({
      callId: "c1",
      attempt: 2,
      tool: "shop",
      argumentsJson: "{}",
      answers: [...names, "buy"].map((name) => answer(name, "Ada")),
    });
    connection.send({ $case: "callRequest", value });
    await connection.expect("callAccepted");
    for (const [number, item] of [[17, "milk"], [18, "bread"]] as const) {
      const { inputId } = await connection.expect("needInput");
      assert.equal(inputId, `question-${number}`);
      connection.send({ $case: "inputResponse", value: answer(inputId, item) });
    }
    assert.equal((await connection.expect("callResult")).output, '["milk","bread","Ada"]');
  });

  test("without a question, once the state is acknowledged", async () => {
    bench.host.tool(declared("save"), async (call) => {
      await call.saveResumeState(Buffer.from("one"));
      await call.saveResumeState(Buffer.from("two"));
      return new Output("", [], { structured: [1], links: [{ url: "https://a.example" }] });
    });
    bench.run();
    const ack = (resumeNo: bigint) =>
      ({ $case: "progressAck", value: { callId: "c1", attempt: 1, resumeNo } }) as const;
    const first = await bench.welcome();
    await first.sendCall("c1", "save");
    const one = await first.expect("progress");
    assert.deepEqual([`${one.resumeState}`, one.resumeNo], ["one", 1n]);
    first.end(status.UNAVAILABLE);
    const second = await bench.welcome();
    assert.deepEqual(await second.expect("progress"), one);
    second.send(ack(1n));
    const two = await second.expect("progress");
    assert.deepEqual([`${two.resumeState}`, two.resumeNo], ["two", 2n]);
    second.send(ack(2n));
    const result = await second.expect("callResult");
    assert.deepEqual([result.output, result.structuredJson, result.links[0]?.url], ["", "[1]", "https://a.example"]);
  });

  test("with the last checkpoint, which is repeated after a reconnect", async () => {
    const [next, saved] = [new EventEmitter(), new EventEmitter()];
    bench.host.tool(declared("advance"), async (call) => {
      for (const checkpoint of ["one", "two"]) {
        await once(next, "step");
        await call.progress("saved", undefined, Buffer.from(checkpoint));
        saved.emit("step");
      }
      await once(next, "step");
      return "done";
    });
    bench.run();
    const save = async () => {
      const done = once(saved, "step");
      next.emit("step");
      await done;
    };
    const first = await bench.welcome();
    await first.sendCall("c1", "advance");
    await save();
    assert.equal(`${(await first.expect("progress")).checkpoint}`, "one");
    first.end(status.UNAVAILABLE);
    const [second] = await bench.accept();
    await save(); // not welcome yet: nothing can be sent
    second.welcome({});
    assert.equal(`${(await second.expect("progress")).checkpoint}`, "two");
    next.emit("step");
    await second.expect("callResult");
    second.end(status.UNAVAILABLE);
    await (await bench.welcome()).expect("callResult"); // a call that has ended has no checkpoint
  });

  test("once both of two states are acknowledged together", async () => {
    bench.host.tool(declared("save"), async (call) => {
      await Promise.all([call.saveResumeState(Buffer.from("one")), call.saveResumeState(Buffer.from("two"))]);
      return "saved";
    });
    bench.run();
    const first = await bench.welcome();
    await first.sendCall("c1", "save");
    for (const no of [1n, 2n]) assert.equal((await first.expect("progress")).resumeNo, no);
    first.end(status.UNAVAILABLE);
    const second = await bench.welcome();
    assert.equal((await second.expect("progress")).resumeNo, 2n);
    second.send({ $case: "progressAck", value: { callId: "c1", attempt: 1, resumeNo: 2n } });
    assert.equal((await second.expect("callResult")).output, "saved");
  });

  test("every kind of question with metadata", async () => {
    bench.host.tool(declared("kinds"), async (call) => [
      await call.ask("Text?", { metadata: { kind: "text" } }),
      await call.choose("One?", ["a"], { metadata: { kind: "one" } }),
      await call.chooseSeveral("Several?", ["a"], { metadata: { kind: "several" } }),
      await call.fillIn("Form?", { type: "object" }, { metadata: { kind: "form" } }),
      await call.visit("Visit?", "https://pay.example", { metadata: { kind: "visit" } }),
      await call.ask("Nothing?"),
    ]);
    bench.run();
    const connection = await bench.welcome();
    await connection.sendCall("c1", "kinds");
    const text: InputResponse["response"] = { $case: "text", value: "yes" };
    const selection: InputResponse["response"] = { $case: "selection", value: { optionIds: ["a"] } };
    const asked: [string, InputResponse["response"]][] = [
      ['{"kind":"text"}', text],
      ['{"kind":"one"}', selection],
      ['{"kind":"several"}', selection],
      ['{"kind":"form"}', { $case: "formJson", value: "{}" }],
      ['{"kind":"visit"}', { $case: "url", value: UrlOutcome.DONE }],
      ["", text],
    ];
    for (const [metadata, response] of asked) {
      const { inputId, metadataJson } = await connection.expect("needInput");
      assert.equal(metadataJson, metadata);
      connection.send({ $case: "inputResponse", value: { callId: "c1", inputId, response } });
    }
    await connection.expect("callResult");
  });

  test("forms, visits and empty texts", async () => {
    bench.host.tool(declared("fill"), async (call) => [
      await call.fillIn("Who?", { type: "object" }),
      await call.visit("Pay", "https://pay.example"),
      await call.ask("More?", { allowEmpty: true }),
    ]);
    bench.run();
    const connection = await bench.welcome();
    await connection.sendCall("c1", "fill");
    for (const response of [
      { $case: "formJson", value: '{"name":"Ada"}' },
      { $case: "url", value: UrlOutcome.DONE },
      { $case: "text", value: "" },
    ] as const) {
      const { inputId } = await connection.expect("needInput");
      connection.send({ $case: "inputResponse", value: { callId: "c1", inputId, response } });
    }
    assert.equal((await connection.expect("callResult")).output, '[{"name":"Ada"},true,""]');
  });
});

describe("no frame is larger than the server accepts", () => {
  const BOUND = 65_536;
  const small = { maxFrameBytes: BigInt(BOUND) };
  const fits = (frame: Frame) => assert.ok(sizeOf(frame) <= BOUND);

  beforeEach(() => {
    bench.tool("echo", ({ times }: { times: number }) => "x".repeat(times));
    bench.tool("fail", () => {
      throw new ToolFailed("ä".repeat(BOUND), { effect: NONE });
    });
    const talk = { name: "talk", description: "Talks.", schema: { type: "object" }, effect: EffectClass.READ_ONLY };
    bench.host.tool(talk, async (call) => {
      await call.output("x".repeat(BOUND));
      await call.progress("saved", 0.5, new Uint8Array(BOUND));
      return call.ask("?".repeat(BOUND)).catch((why) => (why instanceof NoAnswer ? why.message : "asked"));
    });
    const report = { ...talk, name: "report" };
    bench.host.tool(report, (call) => call.progress(`x${"🐦".repeat(1024)}`));
    bench.host.contextSource({ name: "notes" }, async () => ["x".repeat(BOUND)]);
    bench.run();
  });

  test("a larger result becomes a failure", async () => {
    const connection = await bench.welcome(small);
    const room = BOUND - 24;
    await connection.sendCall("c1", "echo", { args: { times: room } });
    const value = await connection.expect("callResult");
    assert.equal(sizeOf({ $case: "callResult", value }), BOUND, "to the last byte");
    await connection.sendCall("c2", "echo", { args: { times: room + 1 } });
    const failed = await connection.expect("callFailed");
    assert.equal(failed.message, "the result has 65537 bytes with its frame; the server takes 65536");
    assert.deepEqual([failed.effect, failed.retryable], [DONE, false]);
  });

  test("a larger failure keeps its beginning", async () => {
    const connection = await bench.welcome(small);
    await connection.sendCall("c1", "fail");
    const value = await connection.expect("callFailed");
    fits({ $case: "callFailed", value });
    assert.equal(value.effect, NONE);
    assert.ok(value.message.length > 32_000);
  });

  test("an older result is cut to the bound of a new server", async () => {
    const first = await bench.welcome();
    await first.sendCall("c1", "echo", { args: { times: BOUND } });
    await first.expect("callResult");
    first.end(status.UNAVAILABLE);
    const second = await bench.welcome(small);
    assert.match((await second.expect("callFailed")).message, /the server takes 65536/);
  });

  test("the text of a progress is cut between characters", async () => {
    const connection = await bench.welcome();
    await connection.sendCall("c1", "report");
    assert.equal((await connection.expect("progress")).message, `x${"🐦".repeat(1023)}`);
  });

  test("output is split and other large frames are dropped", async () => {
    const connection = await bench.welcome(small);
    await connection.sendCall("c1", "talk");
    let [said, chunks] = [0, 0n];
    while (said < BOUND) {
      const value = await connection.expect("outputChunk");
      fits({ $case: "outputChunk", value });
      said += value.data.length;
      assert.equal(value.chunkSeq, ++chunks);
    }
    const progress = await connection.expect("progress");
    assert.deepEqual([progress.message, progress.checkpoint], ["saved", undefined]);
    assert.match((await connection.expect("callResult")).output, /65536 bytes/);
  });

  test("a larger response of an extension becomes a failure", async () => {
    const connection = await bench.welcome(small);
    const request = { $case: "context" as const, value: {} };
    connection.send({ $case: "extensionRequest", value: ExtensionRequest.fromPartial({ name: "notes", request }) });
    const { response } = await connection.expect("extensionResponse");
    assert.ok(response?.$case === "failure");
    assert.match(response.value.message, /the server takes 65536/);
  });
});
