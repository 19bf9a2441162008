package host

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/grpc/codes"
)

// refusedBy waits for the end of Run, which must be a refusal, and returns its words.
func refusedBy(t *testing.T, ended <-chan error) string {
	t.Helper()
	select {
	case err := <-ended:
		var refused *RefusedError
		if !errors.As(err, &refused) {
			t.Fatalf("not refused: %v", err)
		}
		return err.Error()
	case <-time.After(testTimeout):
		t.Fatal("the host still runs")
	}
	return ""
}

// run starts a host that nothing but a refusal ends. A call of its tool says on the channel that it was stopped.
func (f *fakeServer) run() (ended chan error, stopped chan struct{}) {
	ended, stopped = make(chan error, 1), make(chan struct{})
	h := New(Options{Server: f.address, HostID: "host-1"})
	AddTool(h, declared("wait"), func(ctx context.Context, _ *Call, _ nothing) (any, error) {
		<-ctx.Done()
		close(stopped)
		return nil, ctx.Err()
	})
	go func() { ended <- h.Run(context.Background()) }()
	return ended, stopped
}

func TestAHostEndsBeforeTheWelcomeByALastingStatus(t *testing.T) {
	server := startServer(t)
	ended, _ := server.run()
	// A status that may pass is no refusal.
	for _, code := range []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.Unauthenticated} {
		connection, _ := server.accept(t)
		connection.over <- code
	}
	if words := refusedBy(t, ended); !strings.HasPrefix(words, "the server refused the host: Unauthenticated: ") {
		t.Error(words)
	}
}

func TestAHostEndsByAProtocolErrorInPlaceOfAWelcome(t *testing.T) {
	server := startServer(t)
	ended, _ := server.run()
	connection, _ := server.accept(t)
	connection.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_ProtocolError{
		ProtocolError: &pb.ProtocolError{Message: "hello.host_id: no id"},
	}})
	if words := refusedBy(t, ended); words != "the server refused the host: hello.host_id: no id" {
		t.Error(words)
	}
}

func refusing(refusal pb.CapabilityRefusal) *pb.Welcome {
	verdict := &pb.CapabilityVerdict{Name: "wait", Reason: "other terms", Refusal: refusal}
	return &pb.Welcome{ProtocolVersion: 1, Capabilities: []*pb.CapabilityVerdict{verdict}}
}

func TestAHostWhoseToolsAreAllRefusedDeliversWhatItHasAndEnds(t *testing.T) {
	server := startServer(t)
	ended, stopped := server.run()
	first := server.welcome(t, 0)
	first.sendCall(request("c1", "wait", nothing{}))
	first.over <- codes.Unavailable

	second, _ := server.welcomeWith(t, refusing(pb.CapabilityRefusal_CAPABILITY_REFUSAL_DIFFERENT))
	if frame := second.reply(); frame.GetDraining() == nil {
		t.Fatalf("%v", frame)
	}
	second.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_Cancel{Cancel: &pb.Cancel{CallId: "c1", Attempt: 1}}})
	<-stopped
	if frame := second.reply(); frame.GetCancelAck() == nil {
		t.Fatalf("%v", frame)
	}
	if frame := second.reply(); frame.GetGoodbye() == nil {
		t.Fatalf("%v", frame)
	}
	if words := refusedBy(t, ended); words != "the server refused the host: it refused every tool: wait: other terms" {
		t.Error(words)
	}
}

func TestAHostWhoseToolsAreRefusedAsWeakerWaitsUntilTheyAreAccepted(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) { AddTool(h, declared("wait"), echo) })
	first, _ := server.welcomeWith(t, refusing(pb.CapabilityRefusal_CAPABILITY_REFUSAL_WEAKER))
	first.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_GoAway{GoAway: &pb.GoAway{Reason: "accepted"}}})
	second := server.welcome(t, 0)
	second.sendCall(request("c1", "wait", times(1)))
	second.result()
}

func TestAHostWhoseIDAnotherHostTookEnds(t *testing.T) {
	server := startServer(t)
	ended, stopped := server.run()
	connection := server.welcome(t, 0)
	connection.sendCall(request("c1", "wait", nothing{}))
	connection.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_ProtocolError{
		ProtocolError: &pb.ProtocolError{Message: "another connection with this host id took this one's place"},
	}})
	connection.over <- codes.FailedPrecondition
	words := refusedBy(t, ended)
	if words != `the server refused the host: another host took the id "host-1"; give each host its own id` {
		t.Error(words)
	}
	<-stopped
}

func TestAHostEndsAfterTheWelcomeByItsCredentialAlone(t *testing.T) {
	server := startServer(t)
	ended, stopped := server.run()
	server.welcome(t, 0).over <- codes.InvalidArgument
	second := server.welcome(t, 0)
	second.sendCall(request("c1", "wait", nothing{}))
	second.over <- codes.PermissionDenied
	if words := refusedBy(t, ended); !strings.Contains(words, "PermissionDenied") {
		t.Error(words)
	}
	select {
	case <-stopped:
	case <-time.After(testTimeout):
		t.Error("the call still runs")
	}
}
