// One call: the object that its tool gets, and the state that the host keeps.

import { AttemptEffect, OutputStream } from "../gen/agentloop/v1/events.js";
import type { CallRequest, InputResponse, NeedInput, Progress } from "../gen/agentloop/v1/tool_host.js";
import { type Caller, type DeepPartial, FileContent, Image, Link } from "../gen/agentloop/v1/types.js";
import { NoAnswer, type Option, Questions, type QuestionOptions, ResumeStates } from "./ask.js";
import { durationOf, milliseconds } from "./connection.js";
import { HostStops, ToolFailed } from "./failure.js";
import { cut, type Frame, type FrameBound, messageOf, sizeOf } from "./frame.js";

// Bounds of the contract.
const MAX_RESULT_BYTES = 3 << 20;
const MAX_CHUNK_BYTES = 64 << 10;
const MAX_CHECKPOINT_BYTES = 64 << 10;
const MAX_PROGRESS_BYTES = 4 << 10;

// Bound on the text of a failure, so that it does not crowd out the conversation.
const MAX_FAILURE_BYTES = 64 << 10;
export const MAX_REFUSAL_BYTES = 4 << 10;
const MAX_RETRY_DELAY_MS = 7 * 86_400_000; // no call may take longer

/** An attempt of a call. */
export type Ref = { callId: string; attempt: number };

/** The host, as its calls use it. */
export interface CallChannel {
  send(frame: Frame): void;
  /** Resolves when the queue of frames has room. */
  room(): Promise<void>;
  /** The largest frame that the server accepts. */
  bound(): FrameBound;
}

/** One call, for its tool. When `signal` aborts, the tool cleans up and throws. */
export class Call {
  readonly callId: string;
  readonly attempt: number;
  readonly idempotencyKey: string;
  readonly checkpoint?: Uint8Array;
  /** The state that an earlier attempt left: go on from it. Undefined: begin. */
  readonly resumeState?: Uint8Array;
  /** Answers to the questions of earlier attempts. A question of the same name gets its answer from here. */
  readonly answers: readonly InputResponse[];
  readonly deadline?: Date;
  readonly runId: string;
  readonly sessionId: string;
  readonly turnId: string;
  /** Who started the run: the tool can act with that person's rights. The name is empty where nobody was asked. */
  readonly caller?: Caller;
  readonly traceparent: string;
  readonly signal: AbortSignal;
  /** The runtime that the host opened for the run, if the tool requires one. */
  runtime: unknown;
  /** For the host only. */
  readonly questions: Questions;
  /** For the host only. */
  readonly states: ResumeStates;
  readonly #channel: CallChannel;
  #chunks = 0n;
  /** The last progress with a checkpoint. */
  #checkpoint?: Progress;

  constructor(request: CallRequest, signal: AbortSignal, channel: CallChannel) {
    this.callId = request.callId;
    this.attempt = request.attempt;
    this.idempotencyKey = request.idempotencyKey;
    this.checkpoint = request.checkpoint;
    this.resumeState = request.resumeState;
    this.answers = request.answers;
    // Where the time left is given, this clock may differ from the server's.
    this.deadline = request.timeLeft ? new Date(Date.now() + milliseconds(request.timeLeft)) : request.deadline;
    this.runId = request.runId;
    this.sessionId = request.sessionId;
    this.turnId = request.turnId;
    this.caller = request.caller;
    this.traceparent = request.traceparent;
    this.signal = signal;
    this.#channel = channel;
    const send = (question: NeedInput) => channel.send({ $case: "needInput", value: question });
    this.questions = new Questions(this.ref, signal, send, () => channel.bound(), request.answers);
    this.states = new ResumeStates(signal, (state, resumeNo) => {
      const frame: Frame = {
        $case: "progress",
        value: { ...this.ref, message: "", resumeState: Buffer.from(state), resumeNo },
      };
      const fits = channel.bound().fits(frame);
      if (fits) channel.send(frame);
      return fits;
    });
  }

  get ref(): Ref {
    return { callId: this.callId, attempt: this.attempt };
  }

  /**
   * Reports progress from 0 to 1. The server stores the checkpoint and gives it to the next attempt. After each reconnect
   * the last progress with a checkpoint is sent again.
   */
  async progress(message: string, fraction?: number, checkpoint?: Uint8Array): Promise<void> {
    if (checkpoint && checkpoint.length > MAX_CHECKPOINT_BYTES) {
      throw new RangeError(`a checkpoint has at most ${MAX_CHECKPOINT_BYTES} bytes`);
    }
    const progress: Progress = {
      ...this.ref,
      resumeNo: 0n,
      message: cut(message, MAX_PROGRESS_BYTES),
      fraction,
      checkpoint: checkpoint && Buffer.from(checkpoint),
    };
    if (checkpoint) this.#checkpoint = progress;
    await this.#channel.room();
    this.#sendProgress(progress);
  }

  /** Sends the last progress with a checkpoint, after a reconnect. For the host only. */
  repeatCheckpoint(): void {
    if (this.#checkpoint) this.#sendProgress(this.#checkpoint);
  }

  /** Sends a progress, without a checkpoint that is larger than the server's bound. */
  #sendProgress(progress: Progress): void {
    const frame: Frame = { $case: "progress", value: progress };
    if (this.#channel.bound().fits(frame)) return this.#channel.send(frame);
    console.error(`call ${this.callId}: checkpoint dropped: it is larger than the server accepts`);
    this.#channel.send({ $case: "progress", value: { ...progress, checkpoint: undefined } });
  }

  /**
   * Records a state of at most 64 KiB that the call goes on from, and resolves when the server has it. Until then the call
   * must do nothing that takes effect. The state is a promise: going on from it repeats nothing that was done, whatever
   * the call does after it. The next attempt has it as `resumeState`, and an UNSAFE call whose host is lost goes on
   * instead of being in doubt. One attempt saves 256 states at most. Errors: NoAnswer; when `signal` aborts, its reason.
   */
  saveResumeState(state: Uint8Array): Promise<void> {
    return this.states.save(state);
  }

  /** Sends output to the subscribers of the run. It is dropped while the server cannot be reached. */
  async output(data: string | Uint8Array, stream = OutputStream.STDOUT): Promise<void> {
    const bytes = Buffer.from(data as Uint8Array);
    for (let start = 0; start < bytes.length; ) {
      await this.#channel.room();
      this.#chunks += 1n;
      const chunk = bytes.subarray(start, start + this.#channel.bound().payloadBytes(this.callId, MAX_CHUNK_BYTES));
      start += chunk.length;
      const value = { ...this.ref, chunkSeq: this.#chunks, stream, data: chunk };
      this.#channel.send({ $case: "outputChunk", value });
    }
  }

  /**
   * Asks a human for text, and waits for the answer, through reconnects and restarts of the server. The call's deadline
   * stands still meanwhile, and starts anew with the answer. A call may ask 16 questions. Errors: NoAnswer; when
   * `signal` aborts, its reason.
   */
  ask(text: string, options: QuestionOptions = {}): Promise<string> {
    return this.questions.text(text, options);
  }

  /** Asks a human to choose one of at most 64 options, and resolves to its id. Otherwise as `ask`. */
  async choose(text: string, from: readonly Option[], options: QuestionOptions = {}): Promise<string> {
    const [chosen] = await this.questions.choice(text, from, false, options);
    if (chosen === undefined) throw new NoAnswer("the answer does not fit the question");
    return chosen;
  }

  /** Asks a human to choose several options, or none, and resolves to their ids. Otherwise as `ask`. */
  chooseSeveral(text: string, from: readonly Option[], options: QuestionOptions = {}): Promise<string[]> {
    return this.questions.choice(text, from, true, options);
  }

  /**
   * Asks a human to fill in a form, and resolves to its fields, which the server has checked. The schema is a JSON schema
   * of an object with flat fields: strings, numbers, integers, booleans, or one of several strings. Otherwise as `ask`.
   */
  fillIn(text: string, schema: object, options: QuestionOptions = {}): Promise<Record<string, unknown>> {
    return this.questions.form(text, schema, options);
  }

  /** Asks a human to visit a link; true if the human did there what was asked. Otherwise as `ask`. */
  visit(text: string, url: string, options: QuestionOptions = {}): Promise<boolean> {
    return this.questions.visit(text, url, options);
  }
}

/** What a result has beside its text and images. */
export interface Beside {
  /** A value that follows the tool's `outputSchemaJson`. The model reads it as JSON if there is no text. */
  structured?: unknown;
  files?: readonly DeepPartial<FileContent>[];
  links?: readonly DeepPartial<Link>[];
}

/** The result of a tool that returns more than a text. */
export class Output {
  readonly text: string;
  readonly images: readonly DeepPartial<Image>[];
  readonly beside: Beside;

  constructor(text: string, images: readonly DeepPartial<Image>[] = [], beside: Beside = {}) {
    this.text = text;
    this.images = images;
    this.beside = beside;
  }
}

/** The end of a call: an output, or a failure. */
export type Outcome =
  | { output: string; images: Image[]; structuredJson: string; files: FileContent[]; links: Link[] }
  | { failure: Failure };

/** The failure of a call, as it is sent. */
export type Failure = Pick<ToolFailed, "message" | "retryable" | "retryDelayMs" | "effect">;

/** The host's state of a call, from its request until its result is acknowledged. */
export interface TrackedCall {
  call: Call;
  leaseToken: string;
  controller: AbortController;
  /** Undefined while the tool runs. */
  outcome?: Outcome;
  outcomeBytes: number;
  cancelling: boolean;
}

/** Runs a tool to its end. It never rejects. */
export async function outcomeOf(run: () => Promise<unknown>): Promise<Outcome> {
  let value: unknown;
  try {
    value = await run();
  } catch (error) {
    return { failure: failureOf(error) };
  }
  try {
    return outputOf(value);
  } catch (error) {
    return done(cut(`the result cannot be sent: ${messageOf(error)}`, MAX_FAILURE_BYTES));
  }
}

/** The outcome with the result of a tool. It throws if the result cannot be written. */
function outputOf(value: unknown): Outcome {
  const { structured, files: someFiles = [], links: someLinks = [] } = value instanceof Output ? value.beside : {};
  const images = value instanceof Output ? value.images.map((image) => Image.fromPartial(image)) : [];
  const files = someFiles.map((file) => FileContent.fromPartial(file));
  const links = someLinks.map((link) => Link.fromPartial(link));
  const structuredJson = structured === undefined ? "" : JSON.stringify(structured);
  const text = value instanceof Output ? value.text : value;
  const output = typeof text === "string" ? text : (JSON.stringify(text) ?? "null");
  const imageBytes = images.reduce((bytes, image) => bytes + Image.encode(image).finish().length, 0);
  const fileBytes = files.reduce((bytes, file) => bytes + FileContent.encode(file).finish().length, 0);
  const linkBytes = links.reduce((bytes, link) => bytes + Link.encode(link).finish().length, 0);
  const texts = Buffer.byteLength(output) + Buffer.byteLength(structuredJson);
  const size = texts + imageBytes + fileBytes + linkBytes;
  if (size <= MAX_RESULT_BYTES) return { output, images, structuredJson, files, links };
  return done(`the result has ${size} bytes, the limit is ${MAX_RESULT_BYTES}`);
}

/** The failure of a call whose tool threw this value. Reading the value may throw, too. */
function failureOf(thrown: unknown): Failure {
  const unknown = { retryable: false, retryDelayMs: 0, effect: AttemptEffect.MAYBE };
  try {
    if (thrown instanceof ToolFailed) return toFailure(thrown, unknown);
    // Node's own functions give the reason of a signal as the cause of their error.
    if (thrown instanceof HostStops || (thrown instanceof Error && thrown.cause instanceof HostStops)) return STOPPED;
  } catch (error) {
    thrown = error;
  }
  return { ...unknown, message: cut(messageOf(thrown), MAX_FAILURE_BYTES) };
}

function toFailure({ message, retryable, retryDelayMs, effect }: ToolFailed, unknown: Omit<Failure, "message">): Failure {
  return {
    message: cut(messageOf(message), MAX_FAILURE_BYTES),
    retryable: retryable === true,
    retryDelayMs: retryDelayMs > 0 ? Math.min(Number(retryDelayMs), MAX_RETRY_DELAY_MS) : unknown.retryDelayMs,
    effect: Number.isInteger(effect) ? effect : unknown.effect,
  };
}

/** The failure of a call that the shutdown of the host stopped. It may be tried again, where that is safe. */
export const STOPPED: Failure = {
  message: "the call was stopped before it ended",
  retryable: true,
  retryDelayMs: 0,
  effect: AttemptEffect.MAYBE,
};

/** The failure that replaces a result that the server refuses. */
export function refusal(serverMessage: string): Outcome {
  return done(`the server refused the result: ${cut(serverMessage, MAX_REFUSAL_BYTES)}`);
}

function done(message: string): Outcome {
  return { failure: { message, retryable: false, retryDelayMs: 0, effect: AttemptEffect.DONE } };
}

/**
 * The frame of a call's outcome, under its current lease. A result larger than the server's bound becomes a failure for
 * good. A failure keeps the beginning of its message.
 */
export function outcomeFrame(tracked: TrackedCall, outcome: Outcome, bound: FrameBound): Frame {
  const frame = frameOf(tracked, outcome);
  const excess = sizeOf(frame) - bound.maxBytes;
  if (excess <= 0) return frame;
  tracked.outcome = cutToFit(outcome, excess, bound.maxBytes);
  return frameOf(tracked, tracked.outcome);
}

function cutToFit(outcome: Outcome, excess: number, most: number): Outcome {
  if ("output" in outcome) return done(`the result has ${most + excess} bytes with its frame; the server takes ${most}`);
  const { message, ...failure } = outcome.failure;
  return { failure: { ...failure, message: cut(message, Buffer.byteLength(message) - excess) } };
}

function frameOf(tracked: TrackedCall, outcome: Outcome): Frame {
  const { call, leaseToken } = tracked;
  if ("output" in outcome) {
    return { $case: "callResult", value: { ...call.ref, leaseToken, ...outcome } };
  }
  const { message, retryable, retryDelayMs, effect } = outcome.failure;
  const retryDelay = retryDelayMs > 0 ? durationOf(retryDelayMs) : undefined;
  return { $case: "callFailed", value: { ...call.ref, leaseToken, message, retryable, retryDelay, effect } };
}
