package host

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// testTimeout bounds every wait of a test. It is long enough for a slow machine.
const testTimeout = 20 * time.Second

// fakeServer is a scripted server. It passes every connection of a host to the test.
type fakeServer struct {
	pb.UnimplementedToolHostServer
	address     string
	connections chan *fakeConnection
}

// fakeConnection is one connection of a host, with the server's end in the test.
type fakeConnection struct {
	t      *testing.T
	stream pb.ToolHost_ConnectServer
	frames chan *pb.ConnectRequest
	over   chan codes.Code
}

func startServer(t *testing.T) *fakeServer {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fake := &fakeServer{address: listener.Addr().String(), connections: make(chan *fakeConnection, 16)}
	server := grpc.NewServer()
	pb.RegisterToolHostServer(server, fake)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return fake
}

// start runs a host until the test ends. Calls that run then are dropped.
func (f *fakeServer) start(t *testing.T, declare func(*Host)) {
	h := New(Options{Server: f.address, HostID: "host-1", DrainTimeout: time.Nanosecond})
	h.stopGrace = time.Nanosecond
	declare(h)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
}

func (f *fakeServer) Connect(stream pb.ToolHost_ConnectServer) error {
	c := &fakeConnection{stream: stream, frames: make(chan *pb.ConnectRequest, 256), over: make(chan codes.Code, 1)}
	f.connections <- c
	go func() {
		defer close(c.frames)
		for {
			frame, err := stream.Recv()
			if err != nil {
				select {
				case c.over <- codes.OK:
				default:
				}
				return
			}
			c.frames <- frame
		}
	}()
	return status.Error(<-c.over, "the test ends the stream")
}

// welcome waits for the next connection, and sends a welcome.
func (f *fakeServer) welcome(t *testing.T, maxFrameBytes uint64) *fakeConnection {
	t.Helper()
	c, _ := f.welcomeWith(t, &pb.Welcome{ProtocolVersion: 1, MaxFrameBytes: maxFrameBytes})
	return c
}

// welcomeWith waits for the next connection, and sends this welcome. It also returns the connection's hello.
func (f *fakeServer) welcomeWith(t *testing.T, welcome *pb.Welcome) (*fakeConnection, *pb.Hello) {
	t.Helper()
	c, hello := f.accept(t)
	c.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_Welcome{Welcome: welcome}})
	return c, hello
}

// accept waits for the next connection and its hello.
func (f *fakeServer) accept(t *testing.T) (*fakeConnection, *pb.Hello) {
	t.Helper()
	select {
	case c := <-f.connections:
		c.t = t
		hello := c.next().GetHello()
		if hello == nil {
			t.Fatal("the first frame is not hello")
		}
		return c, hello
	case <-time.After(testTimeout):
		t.Fatal("no connection")
		return nil, nil
	}
}

func (c *fakeConnection) next() *pb.ConnectRequest {
	c.t.Helper()
	select {
	case frame, more := <-c.frames:
		if !more {
			c.t.Fatal("the host has ended the stream")
		}
		return frame
	case <-time.After(testTimeout):
		c.t.Fatal("the host says nothing")
	}
	return nil
}

// reply waits for the next frame that is neither heartbeat nor credit.
func (c *fakeConnection) reply() *pb.ConnectRequest {
	c.t.Helper()
	for {
		frame := c.next()
		if frame.GetHeartbeat() == nil && frame.GetCredit() == nil {
			return frame
		}
	}
}

func (c *fakeConnection) result() *pb.CallResult {
	c.t.Helper()
	frame := c.reply()
	if frame.GetCallResult() == nil {
		c.t.Fatalf("no result: %v", frame)
	}
	return frame.GetCallResult()
}

func (c *fakeConnection) failure() *pb.CallFailed {
	c.t.Helper()
	frame := c.reply()
	if frame.GetCallFailed() == nil {
		c.t.Fatalf("no failure: %v", frame)
	}
	return frame.GetCallFailed()
}

func (c *fakeConnection) rejection() *pb.CallRejected {
	c.t.Helper()
	frame := c.reply()
	if frame.GetCallRejected() == nil {
		c.t.Fatalf("not rejected: %v", frame)
	}
	return frame.GetCallRejected()
}

func (c *fakeConnection) send(frame *pb.ConnectResponse) {
	c.t.Helper()
	if err := c.stream.Send(frame); err != nil {
		c.t.Fatal(err)
	}
}

func request(callID, tool string, arguments any) *pb.CallRequest {
	text, err := json.Marshal(arguments)
	if err != nil {
		panic(err)
	}
	return &pb.CallRequest{
		CallId: callID, Attempt: 1, LeaseToken: "lease-" + callID, IdempotencyKey: "key-" + callID,
		Tool: tool, ArgumentsJson: string(text),
	}
}

func (c *fakeConnection) offer(request *pb.CallRequest) {
	c.t.Helper()
	c.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_CallRequest{CallRequest: request}})
}

// sendCall sends a call that the host must accept.
func (c *fakeConnection) sendCall(request *pb.CallRequest) {
	c.t.Helper()
	c.offer(request)
	if frame := c.reply(); frame.GetCallAccepted().GetCallId() != request.CallId {
		c.t.Fatalf("not accepted: %v", frame)
	}
}

func (c *fakeConnection) acknowledge(callID string) {
	c.t.Helper()
	c.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_ResultAck{ResultAck: &pb.ResultAck{
		CallId: callID, Attempt: 1, Verdict: pb.ResultVerdict_RESULT_VERDICT_RECORDED,
	}}})
}
