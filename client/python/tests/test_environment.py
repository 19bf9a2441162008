"""Credentials of the environment. A token is presented where nobody on the way reads along."""

import os
import tempfile
import unittest
from unittest.mock import patch

from agentloop_host.environment import credentials_of_environment, keeps_secret


class Files(unittest.TestCase):
    def found(self, **variables: str) -> dict:
        with patch.dict(os.environ, {f"AGENTLOOP_{name}": value for name, value in variables.items()}):
            return credentials_of_environment("https://localhost:1")

    def test_files_and_token_are_options_of_a_host(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"pem")
            file.flush()
            found = self.found(CA_FILE=file.name, CERT_FILE=file.name, KEY_FILE=file.name, TOKEN="t")
        self.assertEqual(found, {"ca": b"pem", "certificate": b"pem", "key": b"pem", "token": "t"})

    def test_a_file_that_cannot_be_read_is_named(self):
        with self.assertRaisesRegex(SystemExit, "cannot read /nothing/here"):
            self.found(CA_FILE="/nothing/here")


class Tokens(unittest.TestCase):
    def test_a_token_goes_unencrypted_to_no_other_machine(self):
        for address in ["https://10.0.0.1:443", "127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "127.9.9.9:1"]:
            self.assertTrue(keeps_secret(address), address)
        for address in ["10.0.0.1:1", "http://server:1", "localhost.example.org:1", "http://127.0.0.1.example.org:1"]:
            self.assertFalse(keeps_secret(address), address)


if __name__ == "__main__":
    unittest.main()
