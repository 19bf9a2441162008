// An example caller: it starts a run, shows its events, approves its tool calls, and reopens a lost stream.

import {
  type ClientReadableStream,
  InterceptingCall,
  type Interceptor,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs, promisify } from "node:util";
import { tokenFor } from "./example_credentials.js";
import {
  AgentLoopClient,
  RunStreamRequest,
  SubmitApprovalRequest,
  type SubmitApprovalResponse,
  SubscribeRequest,
} from "./gen/agentloop/v1/agent_loop.js";
import type { ModelDelta, RunEvent, RunFinished } from "./gen/agentloop/v1/events.js";
import { RunInput } from "./gen/agentloop/v1/runs.js";
import {
  type HumanRequest,
  HumanRequestKind,
  type Message,
  RunErrorCode,
  RunStatus,
} from "./gen/agentloop/v1/types.js";
import { addressOf, credentialsOf } from "./host/transport.js";

const ATTEMPTS_MAX = 20; // in a row without a new event
const RETRYABLE = [status.UNAVAILABLE, status.RESOURCE_EXHAUSTED, status.ABORTED, status.INTERNAL];
const CHANNEL_OPTIONS = { "grpc.keepalive_time_ms": 20_000, "grpc.max_reconnect_backoff_ms": 1_000 };

/** A client with the credentials of the environment: AGENTLOOP_CA_FILE, _CERT_FILE, _KEY_FILE and AGENTLOOP_TOKEN. */
function connect(server: string): AgentLoopClient {
  const token = tokenFor(server);
  const authorized: Interceptor = (options, nextCall) =>
    new InterceptingCall(nextCall(options), {
      start(metadata, listener, next) {
        metadata.set("authorization", `Bearer ${token}`);
        next(metadata, listener);
      },
    });
  const { address, encrypted } = addressOf(server);
  const encryption = credentialsOf(encrypted, {
    ca: fileOf("AGENTLOOP_CA_FILE"),
    certificate: fileOf("AGENTLOOP_CERT_FILE"),
    key: fileOf("AGENTLOOP_KEY_FILE"),
  });
  return new AgentLoopClient(address, encryption, { ...CHANNEL_OPTIONS, interceptors: token ? [authorized] : [] });
}

/** The content of the file that the environment names. */
function fileOf(variable: string): Buffer | undefined {
  const path = process.env[variable];
  return path ? readFileSync(path) : undefined;
}

/** One run, followed from its prompt to its end. */
class Caller {
  lastMessage: Message | undefined;
  readonly #client: AgentLoopClient;
  readonly #input: RunInput;
  readonly #screen = new Screen();
  #lastSeq = 0n;

  constructor(client: AgentLoopClient, input: RunInput) {
    this.#client = client;
    this.#input = input;
  }

  /** Follows the run to its end. Errors: a lasting ServiceError, Error after too many attempts. */
  async follow(): Promise<RunFinished> {
    for (let failures = 0; failures < ATTEMPTS_MAX;) {
      const seen = this.#lastSeq;
      let reason = "it ended early";
      try {
        const finished = await this.#followOnce();
        if (finished) return finished;
      } catch (error) {
        const { code } = error as ServiceError;
        if (!RETRYABLE.includes(code)) throw error;
        reason = status[code];
      }
      failures = this.#lastSeq === seen ? failures + 1 : 1;
      this.#screen.line(`stream lost (${reason}), reopening it after event ${this.#lastSeq}`);
      await sleep(Math.min(100 * 2 ** failures, 2_000));
    }
    throw new Error("the stream was lost too often");
  }

  async #followOnce(): Promise<RunFinished | undefined> {
    const stream = this.#stream();
    try {
      for await (const { event } of stream as AsyncIterable<{ event?: RunEvent }>) {
        const finished = event && (await this.#onEvent(event));
        if (finished) return finished;
      }
    } finally {
      stream.cancel();
    }
    return undefined;
  }

  /** Starts the run, or subscribes after the last event. The run id makes a second start harmless. */
  #stream(): ClientReadableStream<{ event?: RunEvent | undefined }> {
    if (this.#lastSeq === 0n) {
      return this.#client.runStream(RunStreamRequest.fromPartial({ input: this.#input }));
    }
    const { runId } = this.#input;
    return this.#client.subscribe(SubscribeRequest.fromPartial({ runId, afterSeq: this.#lastSeq }));
  }

  async #onEvent({ seq, event }: RunEvent): Promise<RunFinished | undefined> {
    if (seq > 0n) this.#screen.line(`[${seq}] ${snakeCase(event?.$case ?? "unknown")}`);
    switch (event?.$case) {
      case "modelDelta":
        this.#screen.delta(event.value);
        break;
      case "partialMessage":
        this.#screen.message(event.value);
        break;
      case "assistantMessage":
        this.#screen.message(event.value);
        this.lastMessage = event.value.message;
        break;
      case "humanRequested":
        await this.#answer(event.value.request!);
        break;
    }
    // After the handling: an event whose handling failed comes again after a reconnect.
    if (seq > this.#lastSeq) this.#lastSeq = seq;
    return event?.$case === "runFinished" ? event.value : undefined;
  }

  async #answer({ requestId, kind, tool, argumentsJson, question, digest }: HumanRequest): Promise<void> {
    this.#screen.line(`${tool} ${argumentsJson}: ${question}`);
    if (kind !== HumanRequestKind.APPROVE) return; // left to a human
    const decision = { decision: { $case: "approve" as const, value: {} } };
    const approval = SubmitApprovalRequest.fromPartial({ requestId, decision, digest, decidedBy: "example caller" });
    try {
      await promisify<SubmitApprovalRequest, SubmitApprovalResponse>(this.#client.submitApproval).call(
        this.#client,
        approval,
      );
      this.#screen.line("approved");
    } catch (error) {
      if ((error as ServiceError).code !== status.FAILED_PRECONDITION) throw error;
      this.#screen.line(`not approved: ${(error as ServiceError).details}`); // somebody else answered first
    }
  }
}

/** Prints the model's text as it comes, and lines about events between. */
class Screen {
  #shown = "";
  #attempt = ""; // model call and attempt: each starts a new text
  #deltaSeq = 0n;
  #inLine = false;

  line(text: string): void {
    process.stdout.write(`${this.#inLine ? "\n" : ""}${text}\n`);
    this.#inLine = false;
  }

  delta(delta: ModelDelta): void {
    this.#begin(delta);
    if (delta.deltaSeq <= this.#deltaSeq) return;
    this.#deltaSeq = delta.deltaSeq;
    if (delta.delta?.$case === "text") this.#text(delta.delta.value);
  }

  /** Shows the missing rest of a whole or partial message, or all of it if the shown text differs. */
  message(event: { modelCall: number; attempt: number; deltaSeq?: bigint; message?: Message | undefined }): void {
    this.#begin(event);
    if (event.deltaSeq && event.deltaSeq > this.#deltaSeq) this.#deltaSeq = event.deltaSeq;
    const text = textOf(event.message);
    if (!text.startsWith(this.#shown)) {
      this.line("");
      this.#shown = "";
    }
    this.#text(text.slice(this.#shown.length));
  }

  #begin({ modelCall, attempt }: { modelCall: number; attempt: number }): void {
    const current = `${modelCall}.${attempt}`;
    if (this.#attempt === current) return;
    this.#attempt = current;
    this.#shown = "";
    this.#deltaSeq = 0n;
  }

  #text(text: string): void {
    this.#shown += text;
    this.#inLine ||= text !== "";
    process.stdout.write(text);
  }
}

function textOf(message: Message | undefined): string {
  return (message?.parts ?? []).map(({ content }) => (content?.$case === "text" ? content.value : "")).join("");
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

const { values: options, positionals } = parseArgs({
  options: {
    server: { type: "string", default: process.env["AGENTLOOP_SERVER"] || "127.0.0.1:50051" },
    "run-id": { type: "string", default: randomUUID() },
    "session-id": { type: "string" },
  },
  allowPositionals: true,
});
if (positionals.length === 0) {
  console.error("usage: example_caller [--server ADDRESS] [--run-id ID] [--session-id ID] PROMPT...");
  process.exit(2);
}
const input = RunInput.fromPartial({
  runId: options["run-id"],
  sessionId: options["session-id"],
  prompt: positionals.join(" "),
});
const client = connect(options.server!);
const caller = new Caller(client, input);
const finished = await caller.follow().catch((error: Error) => {
  console.error(error.message);
  process.exit(2);
});
client.close();

console.log("status:", RunStatus[finished.status].toLowerCase());
if (finished.error) console.log("error:", RunErrorCode[finished.error.code], finished.error.message);
if (finished.finalEntryNo > 0n) console.log("answer:", textOf(caller.lastMessage));
process.exitCode = finished.status === RunStatus.COMPLETED ? 0 : 1;
