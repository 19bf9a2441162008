package example

import "testing"

func TestATokenGoesUnencryptedToNoOtherMachine(t *testing.T) {
	for _, address := range []string{"https://10.0.0.1:443", "127.0.0.1:1", "http://localhost:1", "http://[::1]:1"} {
		if !keepsSecret(address) {
			t.Error(address)
		}
	}
	for _, address := range []string{"10.0.0.1:1", "http://server:1", "localhost.example.org:1", "[fe80::1]:1"} {
		if keepsSecret(address) {
			t.Error(address)
		}
	}
}
