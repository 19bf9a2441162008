// The error of a failed tool.

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
