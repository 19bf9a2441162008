// An example caller: prompts, shows what happens, approves what is asked, and takes up a broken stream.

import { type ClientReadableStream, credentials, type ServiceError, status } from "@grpc/grpc-js";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs, promisify } from "node:util";
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

const TRIES = 20; // without a new event in between
const TRY_AGAIN = [status.UNAVAILABLE, status.RESOURCE_EXHAUSTED, status.ABORTED, status.INTERNAL];
const CHANNEL_OPTIONS = { "grpc.keepalive_time_ms": 20_000, "grpc.max_reconnect_backoff_ms": 1_000 };

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

  /** Errors: ServiceError where trying again does not help, Error where it did not. */
  async follow(): Promise<RunFinished> {
    for (let failures = 0; failures < TRIES;) {
      const seen = this.#lastSeq;
      let reason = "it ended early";
      try {
        const finished = await this.#followOnce();
        if (finished) return finished;
      } catch (error) {
        const { code } = error as ServiceError;
        if (!TRY_AGAIN.includes(code)) throw error;
        reason = status[code];
      }
      failures = this.#lastSeq === seen ? failures + 1 : 1;
      this.#screen.line(`stream lost (${reason}), going on after event ${this.#lastSeq}`);
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

  /** Starts the run, or goes on with it. The run's id makes starting it twice the same as once. */
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
    // Only now: what failed above is seen again after a reconnect.
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
      this.#screen.line(`not approved: ${(error as ServiceError).details}`); // somebody was faster
    }
  }
}

/** Text as it comes, and lines between. */
class Screen {
  #shown = "";
  #try = ""; // model call and attempt: each begins its text anew
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

  /** A whole message, or all of it so far: what is not shown yet is added, what differs is shown again. */
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
    if (this.#try === current) return;
    this.#try = current;
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
    server: { type: "string", default: process.env["AGENTLOOP_SERVER"] ?? "127.0.0.1:50051" },
    "run-id": { type: "string", default: randomUUID() },
    "session-id": { type: "string" },
  },
  allowPositionals: true,
});
const input = RunInput.fromPartial({
  runId: options["run-id"],
  sessionId: options["session-id"],
  prompt: positionals.join(" "),
});
const client = new AgentLoopClient(options.server!.replace(/^http:\/\//, ""), credentials.createInsecure(), CHANNEL_OPTIONS);
const caller = new Caller(client, input);
const finished = await caller.follow();
client.close();

console.log("status:", RunStatus[finished.status].toLowerCase());
if (finished.error) console.log("error:", RunErrorCode[finished.error.code], finished.error.message);
if (finished.finalEntryNo > 0n) console.log("answer:", textOf(caller.lastMessage));
process.exitCode = finished.status === RunStatus.COMPLETED ? 0 : 1;
