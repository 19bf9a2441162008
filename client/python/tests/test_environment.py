"""A token is presented where nobody on the way reads along."""

import unittest

from agentloop_host.environment import keeps_secret


class Tokens(unittest.TestCase):
    def test_a_token_goes_unencrypted_to_no_other_machine(self):
        for address in ["https://10.0.0.1:443", "127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "127.9.9.9:1"]:
            self.assertTrue(keeps_secret(address), address)
        for address in ["10.0.0.1:1", "http://server:1", "localhost.example.org:1", "http://127.0.0.1.example.org:1"]:
            self.assertFalse(keeps_secret(address), address)


if __name__ == "__main__":
    unittest.main()
