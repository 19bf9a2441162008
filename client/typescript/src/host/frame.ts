// What a frame can carry.

import { ConnectRequest } from "../gen/agentloop/v1/tool_host.js";

// What a frame has beside a call's id and its payload, at most: tags, lengths, numbers.
const OVERHEAD_BYTES = 64;

/** What a host says; one case of the contract's oneof. */
export type Frame = NonNullable<ConnectRequest["frame"]>;

export function sizeOf(frame: Frame): number {
  return ConnectRequest.encode({ frame }).finish().length;
}

/** The largest frame that the server takes, as its last welcome has it. */
export class FrameBound {
  readonly maxBytes: number;

  /** 0 is none. */
  constructor(maxBytes = 0n) {
    this.maxBytes = maxBytes === 0n ? Infinity : Number(maxBytes);
  }

  takes(frame: Frame): boolean {
    return sizeOf(frame) <= this.maxBytes;
  }

  /** How many of these bytes have room in a frame about a call, at least one. */
  beside(callId: string, most: number): number {
    return Math.max(1, Math.min(most, this.maxBytes - Buffer.byteLength(callId) - OVERHEAD_BYTES));
  }
}

/** A text of at most so many bytes of UTF-8, cut between characters. */
export function cut(text: string, most: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= most) return text;
  let end = Math.max(0, most);
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end);
}

/** What was thrown says of itself; anything can be thrown. */
export function words(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return "it does not say why";
  }
}
