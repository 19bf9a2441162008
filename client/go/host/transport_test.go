package host

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

func TestSchemesChooseTheTransport(t *testing.T) {
	for _, test := range []struct {
		options        Options
		server, secure string
	}{
		{Options{Server: "localhost:1"}, "localhost:1", "insecure"},
		{Options{Server: "http://localhost:1/"}, "localhost:1", "insecure"},
		{Options{Server: "https://localhost:443"}, "localhost:443", "tls"},
		{Options{Server: "HTTPS://[::1]:1/"}, "[::1]:1", "tls"},
		{Options{Server: "localhost:1", Credentials: credentials.NewTLS(nil)}, "localhost:1", "tls"},
	} {
		server, transport, err := test.options.transport()
		if err != nil || server != test.server || transport.Info().SecurityProtocol != test.secure {
			t.Errorf("%s: %s, %v", test.options.Server, server, err)
		}
	}
}

func TestTheAddressIsToldWithItsScheme(t *testing.T) {
	for _, test := range []struct {
		options Options
		told    string
	}{
		{Options{Server: "localhost:1"}, "http://localhost:1"},
		{Options{Server: "HTTPS://localhost:1/"}, "https://localhost:1"},
		{Options{Server: "localhost"}, "http://localhost"},
		{Options{Server: "localhost:1", Credentials: credentials.NewTLS(nil)}, "https://localhost:1"},
	} {
		if told := test.options.url(); told != test.told {
			t.Errorf("%s: %s", test.options.Server, told)
		}
	}
}

func TestOptionsThatCannotBeUsedAreRefused(t *testing.T) {
	const server, address = "https://localhost:1", "is no address of a server: write host:port"
	some := []byte("x")
	for _, test := range []struct {
		options Options
		why     string
	}{
		{Options{}, address},
		{Options{Server: "https://"}, address},
		{Options{Server: "htps://localhost:1"}, address},
		{Options{Server: "not an address"}, address},
		{Options{Server: "https://localhost:x"}, address},
		{Options{Server: "localhost:0"}, address},
		{Options{Server: "localhost:99999"}, address},
		{Options{Server: "localhost:1/path"}, address},
		{Options{Server: "https://user@localhost:1"}, address},
		{Options{Server: "[::1:1"}, address},
		{Options{Server: "unix:/run/socket"}, address},
		{Options{Server: "localhost:1", CA: some}, "begins with https://"},
		{Options{Server: "http://localhost:1", Certificate: some}, "begins with https://"},
		{Options{Server: "http://localhost:1", Key: some}, "begins with https://"},
		{Options{Server: server, CA: some}, "CA has no certificate in PEM"},
		{Options{Server: server, Certificate: some}, "Key is missing"},
		{Options{Server: server, Key: some}, "Certificate is missing"},
		{Options{Server: server, Certificate: some, Key: some}, "the certificate of the host: "},
		{Options{Server: server, CA: some, Credentials: credentials.NewTLS(nil)}, "give either Credentials"},
		{Options{Server: server, Token: "line\nbreak"}, "a header cannot carry"},
		{Options{Server: server, Token: "ä"}, "a header cannot carry"},
	} {
		if err := New(test.options).Run(context.Background()); err == nil || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%v and not %q", err, test.why)
		}
	}
}

func TestTheTokenIsSent(t *testing.T) {
	sent, _ := metadata.FromOutgoingContext(Options{Token: "t"}.authorized(context.Background()))
	if got := sent.Get("authorization"); len(got) != 1 || got[0] != "Bearer t" {
		t.Errorf("sent %v", got)
	}
	if _, some := metadata.FromOutgoingContext(Options{}.authorized(context.Background())); some {
		t.Error("without a token nothing is sent")
	}
}
