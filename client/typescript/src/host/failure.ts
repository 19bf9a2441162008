// Errors: of a failed tool, and of a host that the server refuses.

import { AttemptEffect } from "../gen/agentloop/v1/events.js";

/** Thrown by a tool that failed. `effect` says if the call changed something. */
export class ToolFailed extends Error {
  readonly retryable: boolean;
  readonly retryDelayMs: number;
  readonly effect: AttemptEffect;

  constructor(message: string, how: { retryable?: boolean; retryDelayMs?: number; effect?: AttemptEffect } = {}) {
    super(message);
    this.retryable = how.retryable ?? false;
    this.retryDelayMs = how.retryDelayMs ?? 0;
    this.effect = how.effect ?? AttemptEffect.MAYBE;
  }
}

/** The error of `Host.run` where the server refuses the host for a lasting reason, such as a wrong token. */
export class HostRefused extends Error {
  constructor(reason: string) {
    super(`the server refused the host: ${reason}`);
  }
}

/** The reason with which the signals of calls abort that the shutdown of the host stops. */
export class HostStops extends Error {
  constructor() {
    super("the host shuts down");
    this.name = "AbortError";
  }
}
