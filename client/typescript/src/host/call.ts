// One call: what its tool sees of it, and what the host keeps of it.

import { AttemptEffect, OutputStream } from "../gen/agentloop/v1/events.js";
import type { CallRequest, NeedInput } from "../gen/agentloop/v1/tool_host.js";
import { type DeepPartial, Image } from "../gen/agentloop/v1/types.js";
import { type Option, Questions, type QuestionOptions } from "./ask.js";
import { ToolFailed } from "./failure.js";
import { cut, type Frame, type FrameBound, sizeOf, words } from "./frame.js";

// What the contract allows.
const MAX_RESULT_BYTES = 3 << 20;
const MAX_CHUNK_BYTES = 64 << 10;
const MAX_CHECKPOINT_BYTES = 64 << 10;
const MAX_PROGRESS_CHARS = 1 << 10; // of at most 4 bytes each

// Enough to say why; what a model reads of a failure should not crowd out the conversation.
const MAX_FAILURE_BYTES = 64 << 10;
const MAX_REFUSAL_BYTES = 4 << 10;
const MAX_RETRY_DELAY_MS = 7 * 86_400_000; // no call may take longer

/** A call and a try of it. */
export type Ref = { callId: string; attempt: number };

/** Where a call's progress and output go. */
export interface Audience {
  send(frame: Frame): void;
  /** Resolves when there is room for more. */
  room(): Promise<void>;
  /** How large a frame may be. */
  bound(): FrameBound;
}

/** One call, as its tool sees it. When `signal` aborts, the tool cleans up and throws. */
export class Call {
  readonly callId: string;
  readonly attempt: number;
  readonly idempotencyKey: string;
  readonly checkpoint?: Uint8Array;
  readonly deadline?: Date;
  readonly runId: string;
  readonly sessionId: string;
  readonly turnId: string;
  readonly traceparent: string;
  readonly signal: AbortSignal;
  /** What the host opened for the run, where the tool needs it. */
  runtime: unknown;
  /** The host's own. */
  readonly questions: Questions;
  readonly #audience: Audience;
  #chunks = 0n;

  constructor(request: CallRequest, signal: AbortSignal, audience: Audience) {
    this.callId = request.callId;
    this.attempt = request.attempt;
    this.idempotencyKey = request.idempotencyKey;
    this.checkpoint = request.checkpoint;
    this.deadline = request.deadline;
    this.runId = request.runId;
    this.sessionId = request.sessionId;
    this.turnId = request.turnId;
    this.traceparent = request.traceparent;
    this.signal = signal;
    this.#audience = audience;
    const send = (question: NeedInput) => audience.send({ $case: "needInput", value: question });
    this.questions = new Questions(this.ref, signal, send, () => audience.bound());
  }

  get ref(): Ref {
    return { callId: this.callId, attempt: this.attempt };
  }

  /** Says how far the call is, from 0 to 1. The server keeps the checkpoint and gives it to the next try. */
  async progress(message: string, fraction?: number, checkpoint?: Uint8Array): Promise<void> {
    if (checkpoint && checkpoint.length > MAX_CHECKPOINT_BYTES) {
      throw new RangeError(`a checkpoint has at most ${MAX_CHECKPOINT_BYTES} bytes`);
    }
    await this.#audience.room();
    const value = {
      ...this.ref,
      message: message.slice(0, MAX_PROGRESS_CHARS),
      fraction,
      checkpoint: checkpoint && Buffer.from(checkpoint),
    };
    const frame: Frame = { $case: "progress", value };
    if (!this.#audience.bound().takes(frame)) {
      console.error(`a checkpoint of call ${this.callId} is larger than the server takes, and left out`);
      value.checkpoint = undefined;
    }
    this.#audience.send(frame);
  }

  /** Shows output to whoever watches. What is said while the server is out of reach is lost. */
  async output(data: string | Uint8Array, stream = OutputStream.STDOUT): Promise<void> {
    const bytes = Buffer.from(data as Uint8Array);
    for (let start = 0; start < bytes.length; ) {
      await this.#audience.room();
      this.#chunks += 1n;
      const chunk = bytes.subarray(start, start + this.#audience.bound().beside(this.callId, MAX_CHUNK_BYTES));
      start += chunk.length;
      const value = { ...this.ref, chunkSeq: this.#chunks, stream, data: chunk };
      this.#audience.send({ $case: "outputChunk", value });
    }
  }

  /**
   * Asks a human for text, and waits for as long as that takes, through reconnects and restarts of the server. The
   * call's deadline does not run meanwhile; after the answer the call has all of its time again. A call may ask 16
   * questions. Errors: NoAnswer; when `signal` aborts, its reason.
   */
  ask(text: string, options: QuestionOptions = {}): Promise<string> {
    return this.questions.text(text, options);
  }

  /** Asks a human to choose one of at most 64 options, and resolves to its id; else as `ask`. */
  async choose(text: string, from: readonly Option[], options: QuestionOptions = {}): Promise<string> {
    const [chosen] = await this.questions.choice(text, from, false, options);
    return chosen!;
  }

  /** Asks a human to choose several options, or none, and resolves to their ids; else as `ask`. */
  chooseSeveral(text: string, from: readonly Option[], options: QuestionOptions = {}): Promise<string[]> {
    return this.questions.choice(text, from, true, options);
  }
}

/** What a tool resolves to that shows pictures beside its text. */
export class Output {
  readonly text: string;
  readonly images: readonly DeepPartial<Image>[];

  constructor(text: string, images: readonly DeepPartial<Image>[]) {
    this.text = text;
    this.images = images;
  }
}

/** What a tool came to: an output, or a failure. */
export type Outcome = { output: string; images: Image[] } | { failure: Failure };

/** What is told of a tool that failed. */
export type Failure = Pick<ToolFailed, "message" | "retryable" | "retryDelayMs" | "effect">;

/** A call from its request until its result is acknowledged. */
export interface InHand {
  call: Call;
  leaseToken: string;
  controller: AbortController;
  /** Undefined while the tool runs. */
  outcome?: Outcome;
  cancelling: boolean;
}

/** Waits for a tool. It never rejects. */
export async function outcomeOf(run: () => Promise<unknown>): Promise<Outcome> {
  try {
    const value = await run();
    const images = value instanceof Output ? value.images.map(Image.fromPartial) : [];
    const text = value instanceof Output ? value.text : value;
    const output = typeof text === "string" ? text : (JSON.stringify(text) ?? "null");
    const pictures = images.reduce((bytes, image) => bytes + Image.encode(image).finish().length, 0);
    const size = Buffer.byteLength(output) + pictures;
    if (size <= MAX_RESULT_BYTES) return { output, images };
    return done(`the result has ${size} bytes, the limit is ${MAX_RESULT_BYTES}`);
  } catch (error) {
    return { failure: failureOf(error) };
  }
}

/** What is told of whatever was thrown; a look at it may throw, too. */
function failureOf(thrown: unknown): Failure {
  const unknown = { retryable: false, retryDelayMs: 0, effect: AttemptEffect.MAYBE };
  try {
    if (thrown instanceof ToolFailed) return told(thrown, unknown);
  } catch (error) {
    thrown = error;
  }
  return { ...unknown, message: cut(words(thrown), MAX_FAILURE_BYTES) };
}

function told({ message, retryable, retryDelayMs, effect }: ToolFailed, unknown: Omit<Failure, "message">): Failure {
  return {
    message: cut(words(message), MAX_FAILURE_BYTES),
    retryable: retryable === true,
    retryDelayMs: retryDelayMs > 0 ? Math.min(Number(retryDelayMs), MAX_RETRY_DELAY_MS) : unknown.retryDelayMs,
    effect: Number.isInteger(effect) ? effect : unknown.effect,
  };
}

/** What takes the place of a result that the server refuses, in its words. */
export function refused(said: string): Outcome {
  return done(`the server refused the result: ${cut(said, MAX_REFUSAL_BYTES)}`);
}

function done(message: string): Outcome {
  return { failure: { message, retryable: false, retryDelayMs: 0, effect: AttemptEffect.DONE } };
}

/**
 * Says the outcome, under the lease that the call has now. One that is larger than the server takes is a failure from
 * here on; of a failure the beginning is left.
 */
export function outcomeFrame(held: InHand, outcome: Outcome, bound: FrameBound): Frame {
  const frame = frameOf(held, outcome);
  const excess = sizeOf(frame) - bound.maxBytes;
  if (excess <= 0) return frame;
  held.outcome = cutToFit(outcome, excess, bound.maxBytes);
  return frameOf(held, held.outcome);
}

function cutToFit(outcome: Outcome, excess: number, most: number): Outcome {
  if ("output" in outcome) return done(`the result has ${most + excess} bytes with its frame; the server takes ${most}`);
  const { message, ...failure } = outcome.failure;
  return { failure: { ...failure, message: cut(message, Buffer.byteLength(message) - excess) } };
}

function frameOf(held: InHand, outcome: Outcome): Frame {
  const { call, leaseToken } = held;
  if ("output" in outcome) {
    return { $case: "callResult", value: { ...call.ref, leaseToken, ...outcome } };
  }
  const { message, retryable, retryDelayMs, effect } = outcome.failure;
  const retryDelay = retryDelayMs > 0 ? duration(retryDelayMs) : undefined;
  return { $case: "callFailed", value: { ...call.ref, leaseToken, message, retryable, retryDelay, effect } };
}

function duration(ms: number) {
  return { seconds: BigInt(Math.floor(ms / 1000)), nanos: Math.round((ms % 1000) * 1e6) };
}
