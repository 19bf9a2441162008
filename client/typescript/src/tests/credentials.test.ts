// A token is presented where nobody on the way reads along.

import assert from "node:assert/strict";
import { test } from "node:test";
import { keepsSecret } from "../example_credentials.js";

test("a token goes unencrypted to no other machine", () => {
  for (const address of ["https://10.0.0.1:443", "127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "127.9.9.9:1"]) {
    assert.ok(keepsSecret(address), address);
  }
  for (const address of ["10.0.0.1:1", "http://server:1", "localhost.example.org:1", "http://127.0.0.1.example.org:1"]) {
    assert.ok(!keepsSecret(address), address);
  }
});
