"""Options of a connection: what cannot be used is an error that says why, before anything is sent."""

import unittest

import grpc

from agentloop_host import Host
from agentloop_host.transport import address_of, credentials_of, metadata_of

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\n"
KEY = b"-----BEGIN PRIVATE KEY-----\n"


class Options(unittest.TestCase):
    def test_the_scheme_says_if_the_connection_is_encrypted(self):
        for server, address, encrypted in [
            ("localhost:1", "localhost:1", False),
            ("http://localhost:1/", "localhost:1", False),
            ("https://localhost:1", "localhost:1", True),
            ("HTTPS://[::1]:1/", "[::1]:1", True),
        ]:
            self.assertEqual(address_of(server), (address, encrypted))
            self.assertEqual(Host(server).url, f"{'https' if encrypted else 'http'}://{address}")

    def test_what_is_no_address_is_refused(self):
        for server in ["", "https://", "htps://localhost:1", "not an address", "https://localhost:x", "localhost:1/path",
                       "https://user@localhost:1", "[::1:1", "unix:/run/socket"]:
            with self.assertRaisesRegex(ValueError, "is no address of a server: write host:port", msg=server):
                Host(server)

    def test_certificates_need_encryption(self):
        for option in ["ca", "certificate", "key"]:
            for server in ["localhost:1", "http://localhost:1"]:
                with self.assertRaisesRegex(ValueError, "begins with https://"):
                    Host(server, **{option: CERTIFICATE})

    def test_a_certificate_needs_its_key_and_a_key_its_certificate(self):
        with self.assertRaisesRegex(ValueError, "key is missing"):
            Host("https://localhost:1", certificate=CERTIFICATE)
        with self.assertRaisesRegex(ValueError, "certificate is missing"):
            Host("https://localhost:1", key=KEY)

    def test_what_is_no_pem_is_refused_by_its_name(self):
        for name, files in [
            ("ca", {"ca": b""}),
            ("certificate", {"certificate": KEY, "key": KEY}),
            ("key", {"certificate": CERTIFICATE, "key": CERTIFICATE}),
        ]:
            with self.assertRaisesRegex(ValueError, f"^{name} has no .* in PEM"):
                Host("https://localhost:1", **files)

    def test_credentials_leave_no_room_for_certificates(self):
        with self.assertRaisesRegex(ValueError, "either credentials"):
            Host("https://localhost:1", credentials=grpc.ssl_channel_credentials(), ca=CERTIFICATE)

    def test_an_encrypted_address_has_credentials_by_itself(self):
        self.assertIsNone(credentials_of(False, None, None, None))
        self.assertIsInstance(credentials_of(True, None, None, None), grpc.ChannelCredentials)

    def test_a_token_is_metadata_if_a_header_can_carry_it(self):
        self.assertEqual(metadata_of("t"), (("authorization", "Bearer t"),))
        self.assertEqual(metadata_of(None), ())
        for token in ["line\nbreak", "ä"]:
            with self.assertRaisesRegex(ValueError, "a header cannot carry") as raised:
                Host("localhost:1", token=token)
            self.assertNotIn(token, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
