// Options of a connection: what cannot be used is an error that says why, before anything is sent.

import { credentials } from "@grpc/grpc-js";
import assert from "node:assert/strict";
import { test } from "node:test";
import { Host, type HostOptions } from "../host/index.js";
import { addressOf, transportOf } from "../host/transport.js";

const CERTIFICATE = Buffer.from("-----BEGIN CERTIFICATE-----\n");
const KEY = Buffer.from("-----BEGIN PRIVATE KEY-----\n");
const server = "https://localhost:1";

function refused(options: HostOptions, message: RegExp): void {
  assert.throws(() => new Host(options), { message }, options.server);
}

test("the scheme says if the connection is encrypted", () => {
  for (const [server, address, encrypted] of [
    ["localhost:1", "localhost:1", false],
    ["http://localhost:80/", "localhost:80", false],
    ["https://localhost:443", "localhost:443", true],
    ["HTTPS://[::1]:1/", "[::1]:1", true],
  ] as const) {
    assert.deepEqual(addressOf(server), { address, encrypted });
    assert.equal(transportOf({ server }).url, `${encrypted ? "https" : "http"}://${address}`);
  }
});

test("what is no address is refused", () => {
  for (const server of [
    "", "https://", "htps://localhost:1", "not an address", "https://localhost:x", "localhost:1/path",
    "localhost:0", "localhost:99999", "https://user@localhost:1", "[::1:1", "unix:/run/socket",
  ]) {
    refused({ server }, /is no address of a server: write host:port/);
  }
});

test("certificates need encryption", () => {
  for (const server of ["localhost:1", "http://localhost:1"]) {
    for (const option of ["ca", "certificate", "key"]) {
      refused({ server, [option]: CERTIFICATE }, /begins with https:\/\//);
    }
  }
});

test("a certificate needs its key, and a key its certificate", () => {
  refused({ server, certificate: CERTIFICATE }, /key is missing/);
  refused({ server, key: KEY }, /certificate is missing/);
});

test("what is no PEM is refused", () => {
  refused({ server, ca: Buffer.from("") }, /^ca has no certificate in PEM/);
  refused({ server, certificate: KEY, key: KEY }, /^the certificates cannot be used: /);
});

test("credentials leave no room for certificates", () => {
  refused({ server, credentials: credentials.createSsl(), ca: CERTIFICATE }, /either credentials/);
});

test("a token is metadata if a header can carry it", () => {
  assert.deepEqual(transportOf({ server, token: "t" }).metadata.get("authorization"), ["Bearer t"]);
  assert.deepEqual(transportOf({ server }).metadata.get("authorization"), []);
  for (const token of ["line\nbreak", "ä"]) refused({ server, token }, /^the token has characters that a header cannot carry$/);
});
