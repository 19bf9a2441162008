// The token of the environment, which travels unencrypted to no other machine.

import { isIPv4, isIPv6 } from "node:net";
import { addressOf } from "./host/transport.js";

/**
 * AGENTLOOP_TOKEN, if it is set. Exits where it would travel unencrypted to another machine, unless
 * AGENTLOOP_ALLOW_INSECURE_REMOTE is `true`.
 */
export function tokenFor(server: string): string | undefined {
  const token = process.env["AGENTLOOP_TOKEN"];
  const allowed = process.env["AGENTLOOP_ALLOW_INSECURE_REMOTE"] === "true";
  if (token && !allowed && !keepsSecret(server)) {
    console.error(
      `the token would travel unencrypted to ${server}: use https://, or set ` +
        "AGENTLOOP_ALLOW_INSECURE_REMOTE=true if the network between is trusted",
    );
    process.exit(1);
  }
  return token;
}

/** True if nobody on the way reads along: the address is https://, or of this machine. */
export function keepsSecret(server: string): boolean {
  const { address, encrypted } = addressOf(server);
  if (encrypted) return true;
  const { hostname } = new URL(`http://${address}`);
  const host = hostname.replace(/^\[|\]$/g, "");
  return host === "localhost" || (isIPv4(host) && host.startsWith("127.")) || (isIPv6(host) && host === "::1");
}
