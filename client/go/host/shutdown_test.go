package host

import (
	"context"
	"testing"
	"time"
)

// drained starts a host with a call of this tool, and shuts it down. Its drain timeout is over at once.
func drained(
	t *testing.T, stopGrace time.Duration, run func(ctx context.Context, call *Call, in nothing) (any, error),
) (*fakeConnection, <-chan error) {
	server := startServer(t)
	h := New(Options{Server: server.address, HostID: "host-1", DrainTimeout: time.Nanosecond})
	h.stopGrace = stopGrace
	AddTool(h, declared("wait"), run)
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	connection := server.welcome(t, 0)
	connection.sendCall(request("c1", "wait", nothing{}))
	stop()
	if frame := connection.reply(); frame.GetDraining() == nil {
		t.Fatalf("%v", frame)
	}
	return connection, ended
}

// reported waits for the failure of a call that was stopped, and for the end of the host.
func reported(t *testing.T, connection *fakeConnection, ended <-chan error) {
	t.Helper()
	failed := connection.failure()
	if failed.Message != "the call was stopped before it ended" || !failed.Retryable || failed.Effect != effectMaybe {
		t.Errorf("%v", failed)
	}
	connection.acknowledge("c1")
	if frame := connection.reply(); frame.GetGoodbye() == nil {
		t.Errorf("%v", frame)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testTimeout):
		t.Error("the host still runs")
	}
}

func TestACallThatOutlastsTheDrainTimeoutIsStoppedAndReported(t *testing.T) {
	connection, ended := drained(t, stopGrace, func(ctx context.Context, _ *Call, _ nothing) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	reported(t, connection, ended)
}

func TestACallThatDoesNotStopIsReportedAfterTheGrace(t *testing.T) {
	leave := make(chan struct{})
	connection, ended := drained(t, time.Second, func(context.Context, *Call, nothing) (any, error) {
		<-leave
		return "too late", nil
	})
	reported(t, connection, ended)
	close(leave)
}

func TestACallThatEndsInItsGraceHasItsOwnResult(t *testing.T) {
	connection, ended := drained(t, stopGrace, func(ctx context.Context, _ *Call, _ nothing) (any, error) {
		<-ctx.Done()
		return "finished all the same", nil
	})
	if result := connection.result(); result.Output != "finished all the same" {
		t.Errorf("%v", result)
	}
	connection.acknowledge("c1")
	<-ended
}
