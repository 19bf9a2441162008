// Frames of a host, and bounds on their size.

import { ConnectRequest } from "../gen/agentloop/v1/tool_host.js";

// Upper bound of a frame's bytes other than the call id and the payload: tags, lengths, numbers.
const OVERHEAD_BYTES = 64;

/** A frame that a host sends: one case of the contract's oneof. */
export type Frame = NonNullable<ConnectRequest["frame"]>;

export function sizeOf(frame: Frame): number {
  return ConnectRequest.encode({ frame }).finish().length;
}

/** The largest frame that the server accepts, from its last welcome. */
export class FrameBound {
  readonly maxBytes: number;

  /** `maxBytes` is the bound of the welcome; 0 means no bound. */
  constructor(maxBytes = 0n) {
    this.maxBytes = maxBytes === 0n ? Infinity : Number(maxBytes);
  }

  fits(frame: Frame): boolean {
    return sizeOf(frame) <= this.maxBytes;
  }

  /** The payload that fits into a frame about this call: at least 1 byte, at most `most`. */
  payloadBytes(callId: string, most: number): number {
    return Math.max(1, Math.min(most, this.maxBytes - Buffer.byteLength(callId) - OVERHEAD_BYTES));
  }
}

/** Cuts a text to at most `most` bytes of UTF-8, between characters. */
export function cut(text: string, most: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= most) return text;
  let end = Math.max(0, most);
  while (end > 0 && (bytes[end]! & 0xc0) === 0x80) end--;
  return bytes.toString("utf8", 0, end);
}

/** The message of a thrown value, which can be anything. */
export function messageOf(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return "it does not say why";
  }
}
