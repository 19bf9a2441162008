package host

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"
)

func TestSchemesChooseTheTransport(t *testing.T) {
	for _, test := range []struct {
		options        Options
		server, secure string
	}{
		{Options{Server: "localhost:1"}, "localhost:1", "insecure"},
		{Options{Server: "http://localhost:1/"}, "localhost:1", "insecure"},
		{Options{Server: "https://localhost:1"}, "localhost:1", "tls"},
	} {
		server, transport, err := test.options.transport()
		if err != nil || server != test.server || transport.Info().SecurityProtocol != test.secure {
			t.Errorf("%s: %s, %v", test.options.Server, server, err)
		}
	}
	for _, options := range []Options{
		{Server: "localhost:1", CA: []byte("x")},
		{Server: "https://localhost:1", CA: []byte("x")},
		{Server: "https://localhost:1", Certificate: []byte("x"), Key: []byte("y")},
	} {
		if _, _, err := options.transport(); err == nil {
			t.Errorf("%s is accepted", options.Server)
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
