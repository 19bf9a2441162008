// Runtimes, in which tools with `requiresRuntime` run. The host opens one before the first call of a run that needs it,
// and closes it when the run is over.

import { AttemptEffect } from "../gen/agentloop/v1/events.js";
import type { OpenRuntime } from "../gen/agentloop/v1/tool_host.js";
import { ToolFailed } from "./failure.js";
import { messageOf } from "./frame.js";
import type { Work } from "./tools.js";

/** Functions that open a runtime from a run's init data and hints, and close it. */
export interface RuntimeOptions<Runtime> {
  open: (initData: Record<string, unknown>, hints: Record<string, unknown>) => Promise<Runtime>;
  close: (runtime: Runtime) => Promise<void>;
}

/** The open runtimes of a host. Each is opened once. */
export class Runtimes {
  #options?: RuntimeOptions<unknown>;
  readonly #opened = new Map<string, Promise<unknown>>();

  declare(options: RuntimeOptions<unknown>): void {
    this.#options = options;
  }

  ids(): string[] {
    return [...this.#opened.keys()];
  }

  open(request: OpenRuntime): void {
    if (this.#opened.has(request.runtimeId)) return;
    const opening = this.#open(request);
    opening.catch(() => undefined); // the calls that need it get the error
    this.#opened.set(request.runtimeId, opening);
  }

  /** Delays work until its runtime is open. */
  afterOpening(runtimeId: string, work: Work): Work {
    return async (call) => {
      call.runtime = await Promise.race([this.#waitFor(runtimeId), aborted(call.signal)]);
      return work(call);
    };
  }

  /** Closes a runtime, if it is open. It never rejects. */
  async close(runtimeId: string): Promise<void> {
    const opening = this.#opened.get(runtimeId);
    if (opening === undefined) return;
    this.#opened.delete(runtimeId);
    try {
      await this.#options?.close(await opening);
    } catch (error) {
      console.error(`the runtime ${runtimeId} did not close well: ${messageOf(error)}`);
    }
  }

  async closeAll(): Promise<void> {
    await Promise.all(this.ids().map((id) => this.close(id)));
  }

  /** Waits for a runtime to open. Errors: ToolFailed, without an effect. */
  async #waitFor(runtimeId: string): Promise<unknown> {
    try {
      const opening = this.#opened.get(runtimeId);
      if (opening === undefined) throw new Error("it was never opened");
      return await opening;
    } catch (error) {
      const message = `the runtime cannot be opened: ${error instanceof Error ? error.message : messageOf(error)}`;
      throw new ToolFailed(message, { effect: AttemptEffect.NONE });
    }
  }

  async #open(request: OpenRuntime): Promise<unknown> {
    if (!this.#options) throw new Error("this host opens no runtimes");
    return this.#options.open(JSON.parse(request.initDataJson || "{}"), JSON.parse(request.hintsJson || "{}"));
  }
}

/** Rejects when the signal aborts: the call did not begin. */
function aborted(signal: AbortSignal): Promise<never> {
  const notBegun = () => new ToolFailed("the call was stopped before it began", { effect: AttemptEffect.NONE });
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(notBegun()), { once: true }));
}
