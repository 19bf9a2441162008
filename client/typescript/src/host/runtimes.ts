// What tools with `requiresRuntime` run in: opened before the first call of a run that needs it, closed when the run is
// over.

import { AttemptEffect } from "../gen/agentloop/v1/events.js";
import type { OpenRuntime } from "../gen/agentloop/v1/tool_host.js";
import { ToolFailed } from "./failure.js";
import { words } from "./frame.js";
import type { Work } from "./tools.js";

/** How to open a runtime from a run's init data and hints, and how to close it. */
export interface RuntimeOptions<Runtime> {
  open: (initData: Record<string, unknown>, hints: Record<string, unknown>) => Promise<Runtime>;
  close: (runtime: Runtime) => Promise<void>;
}

/** The runtimes that a host has open. Each is opened once. */
export class Runtimes {
  #how?: RuntimeOptions<unknown>;
  readonly #opened = new Map<string, Promise<unknown>>();

  declare(how: RuntimeOptions<unknown>): void {
    this.#how = how;
  }

  ids(): string[] {
    return [...this.#opened.keys()];
  }

  open(request: OpenRuntime): void {
    if (this.#opened.has(request.runtimeId)) return;
    const opening = this.#open(request);
    opening.catch(() => undefined); // whoever needs it hears of it
    this.#opened.set(request.runtimeId, opening);
  }

  /** Work that begins as soon as its runtime is open. */
  inside(runtimeId: string, work: Work): Work {
    return async (call) => {
      call.runtime = await Promise.race([this.#ready(runtimeId), aborted(call.signal)]);
      return work(call);
    };
  }

  /** Closes one, if it is open. It never rejects. */
  async close(runtimeId: string): Promise<void> {
    const opening = this.#opened.get(runtimeId);
    if (opening === undefined) return;
    this.#opened.delete(runtimeId);
    try {
      await this.#how?.close(await opening);
    } catch (error) {
      console.error(`the runtime ${runtimeId} did not close well: ${words(error)}`);
    }
  }

  async closeAll(): Promise<void> {
    await Promise.all(this.ids().map((id) => this.close(id)));
  }

  /** Errors: ToolFailed, of a call that did nothing. */
  async #ready(runtimeId: string): Promise<unknown> {
    try {
      const opening = this.#opened.get(runtimeId);
      if (opening === undefined) throw new Error("it was never opened");
      return await opening;
    } catch (error) {
      const message = `the runtime cannot be opened: ${error instanceof Error ? error.message : words(error)}`;
      throw new ToolFailed(message, { effect: AttemptEffect.NONE });
    }
  }

  async #open(request: OpenRuntime): Promise<unknown> {
    if (!this.#how) throw new Error("this host opens no runtimes");
    return this.#how.open(JSON.parse(request.initDataJson || "{}"), JSON.parse(request.hintsJson || "{}"));
  }
}

/** Rejects when the signal aborts. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
}
