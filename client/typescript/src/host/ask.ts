// Questions that a running call asks a human.

import { type InputResponse, NeedInput, type ProgressAck } from "../gen/agentloop/v1/tool_host.js";
import { UrlOutcome } from "../gen/agentloop/v1/types.js";
import { durationOf } from "./connection.js";
import { ToolFailed } from "./failure.js";
import type { FrameBound } from "./frame.js";

// Bounds of the contract.
const MAX_QUESTIONS = 16;
const MAX_NAME_BYTES = 128;
const MAX_RESUME_STATE_BYTES = 64 << 10;
const MAX_RESUME_STATES = 256n; // of one attempt
const MAX_TIMEOUT_S = 315_576_000_000;
const MAX_QUESTION_BYTES = 128 << 10; // above the server's own bound; a larger question is not sent

/** One choice: an id and a label for people. A text alone is both. */
export type Option = string | { id: string; label: string };

export interface QuestionOptions {
  /**
   * Name of the question within its call. A later attempt that asks the same question under the same name gets the
   * earlier answer. By default, questions are numbered in the order in which they are asked.
   */
  name?: string;
  /** Time to wait for an answer. The default is the run's `approval_timeout_seconds`. */
  timeoutMs?: number;
  /** True takes an empty text as an answer. */
  allowEmpty?: boolean;
  /**
   * Gives the call up until the answer, which may take a week: the server records the question with this state, and
   * aborts this attempt. The answer comes with the next attempt, on any host; there the question of the same name has it
   * at once, so the question needs a name. The state is a promise: going on from it with the answer repeats nothing that
   * was done until now. At most 64 KiB.
   */
  resumeState?: Uint8Array;
  /** A JSON object of at most 16 KiB for user interfaces. */
  metadata?: object;
}

/**
 * Thrown when there will be no answer: a human declined, nobody answered in time, or the question is invalid. A tool that
 * does not catch it fails with its message.
 */
export class NoAnswer extends ToolFailed {}

type Open = { question: NeedInput; resolve: (response: InputResponse) => void };

/** The questions of one call, and those that wait for an answer. */
export class Questions {
  readonly #of: { callId: string; attempt: number };
  readonly #signal: AbortSignal;
  readonly #send: (question: NeedInput) => void;
  readonly #bound: () => FrameBound;
  readonly #open = new Map<string, Open>();
  readonly #earlier: ReadonlyMap<string, InputResponse>;
  /** Those with an earlier answer, too: an unnamed question has the same number in each attempt. */
  #number = 0;
  /** Questions without an earlier answer. */
  #asked = 0;

  constructor(
    of: { callId: string; attempt: number },
    signal: AbortSignal,
    send: (question: NeedInput) => void,
    bound: () => FrameBound,
    earlier: readonly InputResponse[],
  ) {
    this.#earlier = new Map(earlier.map((answer) => [answer.inputId, answer]));
    this.#of = of;
    this.#signal = signal;
    this.#send = send;
    this.#bound = bound;
  }

  async text(text: string, options: QuestionOptions): Promise<string> {
    const { response } = await this.#ask({ ...this.#of, question: text }, options);
    if (response?.$case !== "text") throw new NoAnswer("the answer does not fit the question");
    return response.value;
  }

  async choice(text: string, from: readonly Option[], multiple: boolean, options: QuestionOptions): Promise<string[]> {
    if (from.length === 0) throw new NoAnswer("there is nothing to choose from");
    const choices = from.map((option) => (typeof option === "string" ? { id: option, label: option } : option));
    const { response } = await this.#ask({ ...this.#of, question: text, options: choices, multiple }, options);
    if (response?.$case !== "selection") throw new NoAnswer("the answer does not fit the question");
    return response.value.optionIds;
  }

  async form(text: string, schema: object, options: QuestionOptions): Promise<Record<string, unknown>> {
    const formSchemaJson = JSON.stringify(schema);
    const { response } = await this.#ask({ ...this.#of, question: text, formSchemaJson }, options);
    if (response?.$case !== "formJson") throw new NoAnswer("the answer does not fit the question");
    return JSON.parse(response.value) as Record<string, unknown>;
  }

  async visit(text: string, url: string, options: QuestionOptions): Promise<boolean> {
    const { response } = await this.#ask({ ...this.#of, question: text, url }, options);
    if (response?.$case !== "url") throw new NoAnswer("the answer does not fit the question");
    return response.value === UrlOutcome.DONE;
  }

  /** Repeats the unanswered questions, after a reconnect. */
  repeat(): void {
    for (const { question } of this.#open.values()) this.#sendQuestion(question);
  }

  /**
   * Refuses the newest question, which the server would refuse again: the older ones got past it. Returns false if there is
   * none.
   */
  refuseNewest(why: string): boolean {
    const newest = [...this.#open.values()].at(-1);
    if (newest) this.#refuse(newest.question, `the server refused the question: ${why}`);
    return newest !== undefined;
  }

  /** Gives an answer of the server to the question that waits for it. */
  onResponse(response: InputResponse): void {
    this.#open.get(response.inputId)?.resolve(response);
    this.#open.delete(response.inputId);
  }

  async #ask(fields: Partial<NeedInput>, options: QuestionOptions): Promise<InputResponse> {
    const { name, timeoutMs, allowEmpty, resumeState, metadata } = options;
    const earlier = name === undefined ? undefined : this.#earlier.get(name);
    if (earlier) {
      this.#number += 1;
      return answered(earlier);
    }
    if (resumeState && name === undefined) throw new NoAnswer("a question with a resume state needs a name");
    checkState(resumeState);
    this.#signal.throwIfAborted();
    this.#number += 1;
    this.#asked += 1;
    const inputId = name ?? `question-${this.#number}`;
    const timeout = timeoutMs === undefined ? undefined : timeoutOf(timeoutMs);
    const question = NeedInput.fromPartial({
      ...fields,
      inputId,
      timeout,
      allowEmpty,
      resumeState: resumeState && Buffer.from(resumeState),
      metadataJson: metadata && JSON.stringify(metadata),
    });
    this.#check(question);
    return answered(await this.#wait(question));
  }

  #check(question: NeedInput): void {
    const named = Buffer.byteLength(question.inputId);
    if (this.#asked > MAX_QUESTIONS) throw new NoAnswer(`a call may ask ${MAX_QUESTIONS} questions at most`);
    if (named < 1 || named > MAX_NAME_BYTES) {
      throw new NoAnswer(`the name of a question has 1 to ${MAX_NAME_BYTES} bytes`);
    }
    if (this.#open.has(question.inputId)) throw new NoAnswer(`the call asks "${question.inputId}" already`);
    if (NeedInput.encode(question).finish().length > MAX_QUESTION_BYTES) {
      throw new NoAnswer(`the question has more than ${MAX_QUESTION_BYTES} bytes`);
    }
  }

  #wait(question: NeedInput): Promise<InputResponse> {
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.#open.delete(question.inputId);
        reject(this.#signal.reason);
      };
      this.#signal.addEventListener("abort", stop, { once: true });
      const answered = (response: InputResponse) => {
        this.#signal.removeEventListener("abort", stop);
        resolve(response);
      };
      this.#open.set(question.inputId, { question, resolve: answered });
      this.#sendQuestion(question);
    });
  }

  /** Sends a question, or refuses it if it is larger than the server's bound. */
  #sendQuestion(question: NeedInput): void {
    const bound = this.#bound();
    if (bound.fits({ $case: "needInput", value: question })) return this.#send(question);
    this.#refuse(question, `the question has more than the ${bound.maxBytes} bytes that the server takes`);
  }

  #refuse({ callId, inputId }: NeedInput, why: string): void {
    this.onResponse({ callId, inputId, response: { $case: "refused", value: why } });
  }
}

function answered(response: InputResponse): InputResponse {
  if (response.response?.$case === "refused") throw new NoAnswer(`no answer: ${response.response.value}`);
  return response;
}

/** Throws NoAnswer for a state that is too large. */
function checkState(state: Uint8Array | undefined): void {
  if (state && state.length > MAX_RESUME_STATE_BYTES) {
    throw new NoAnswer(`a resume state has at most ${MAX_RESUME_STATE_BYTES} bytes`);
  }
}

/** The states of one call that are not recorded yet. */
export class ResumeStates {
  readonly #signal: AbortSignal;
  readonly #send: (state: Uint8Array, no: bigint) => boolean;
  #last = 0n;
  /** By rising number. */
  #unrecorded: { state: Uint8Array; no: bigint; resolve: () => void; reject: (reason: unknown) => void }[] = [];

  /** `send` returns false for a state that is larger than the server accepts. */
  constructor(signal: AbortSignal, send: (state: Uint8Array, no: bigint) => boolean) {
    this.#signal = signal;
    this.#send = send;
  }

  async save(state: Uint8Array): Promise<void> {
    this.#signal.throwIfAborted();
    checkState(state);
    if (this.#last === MAX_RESUME_STATES) {
      throw new NoAnswer(`one attempt of a call saves ${MAX_RESUME_STATES} resume states at most`);
    }
    return new Promise((resolve, reject) => {
      const stop = () => reject(this.#signal.reason);
      this.#signal.addEventListener("abort", stop, { once: true });
      const recorded = () => {
        this.#signal.removeEventListener("abort", stop);
        resolve();
      };
      this.#last += 1n;
      this.#unrecorded.push({ state, no: this.#last, resolve: recorded, reject });
      this.repeat();
    });
  }

  /** Sends the last state, if it is not recorded; also after a reconnect. One that is too large is refused. */
  repeat(): void {
    for (let last = this.#unrecorded.at(-1); last && !this.#send(last.state, last.no); last = this.#unrecorded.at(-1)) {
      this.#unrecorded.pop();
      last.reject(new NoAnswer("the resume state is larger than the server takes"));
    }
  }

  /** Refuses the states that are not recorded: the server would refuse them again. */
  refuse(why: string): void {
    for (const { reject } of this.#unrecorded) reject(new NoAnswer(`the server refused the resume state: ${why}`));
    this.#unrecorded = [];
  }

  onAck(ack: ProgressAck): void {
    for (const { no, resolve } of this.#unrecorded) if (no <= ack.resumeNo) resolve();
    this.#unrecorded = this.#unrecorded.filter(({ no }) => no > ack.resumeNo);
  }
}

function timeoutOf(ms: number) {
  if (!(ms > 0 && ms / 1000 <= MAX_TIMEOUT_S)) {
    throw new NoAnswer(`a timeout is more than zero, and at most ${MAX_TIMEOUT_S} s`);
  }
  return durationOf(ms);
}
