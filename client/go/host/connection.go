package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	pb "agentloop/client/go/agentloop/v1"
)

const (
	welcomeTimeout           = 10 * time.Second
	closeTimeout             = 2 * time.Second
	defaultHeartbeatInterval = 5 * time.Second

	silentIntervals = 2 // heartbeat intervals without a frame, after which the server counts as gone
)

// connection is one stream. All frames go through its outbox, which only one goroutine reads, so there is one writer.
type connection struct {
	host           *Host
	outbox         *outbox
	abandon        context.CancelFunc
	credit         uint64 // calls granted since the stream began
	spent          uint64 // calls that came since then
	welcomed       bool   // true between the welcome and the end
	welcomedAt     time.Time
	reconnectAfter time.Duration
	left           bool // the host shuts down: no reconnect
}

// serve connects, and returns when the stream has ended; nil if the server ended it with OK. A *RefusedError means that
// another connection would end the same way.
func (c *connection) serve(ctx context.Context, client pb.ToolHostClient) error {
	err := c.exchange(ctx, client)
	return refusalOr(err, c.host.options.HostID, !c.welcomedAt.IsZero())
}

func (c *connection) exchange(ctx context.Context, client pb.ToolHostClient) error {
	ctx, c.abandon = context.WithCancel(ctx)
	defer c.abandon()
	stream, err := client.Connect(c.host.options.authorized(ctx))
	if err != nil {
		return err
	}
	c.host.attach(c)
	defer c.host.detach(c)
	go c.write(stream)

	welcome, err := c.firstFrame(stream)
	if err != nil {
		return err
	}
	c.host.onWelcome(c, welcome)
	interval := welcome.HeartbeatInterval.AsDuration()
	if interval <= 0 {
		interval = defaultHeartbeatInterval
	}
	go c.beat(ctx, interval)
	return c.read(ctx, stream, silentIntervals*interval)
}

// lasted is the time since the welcome; 0 without one.
func (c *connection) lasted() time.Duration {
	if c.welcomedAt.IsZero() {
		return 0
	}
	return time.Since(c.welcomedAt)
}

// close sends no more frames, and waits for the server to end the stream. It must be called with the host's lock held.
func (c *connection) close() {
	c.welcomed = false
	c.outbox.finish()
	time.AfterFunc(closeTimeout, c.abandon)
}

func (c *connection) write(stream pb.ToolHost_ConnectClient) {
	for {
		frame, more := c.outbox.pop()
		if !more {
			_ = stream.CloseSend() // never fails
			return
		}
		if stream.Send(frame) != nil {
			return // the reader gets the error
		}
	}
}

func (c *connection) firstFrame(stream pb.ToolHost_ConnectClient) (*pb.Welcome, error) {
	timeout := time.AfterFunc(welcomeTimeout, c.abandon)
	defer timeout.Stop()
	frame, err := stream.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the stream ended before the welcome")
	case err != nil:
		return nil, err
	case frame.GetProtocolError() != nil:
		return nil, &RefusedError{Reason: frame.GetProtocolError().Message}
	case frame.GetGoAway() != nil:
		c.reconnectAfter = frame.GetGoAway().ReconnectAfter.AsDuration()
		return nil, fmt.Errorf("the server asks to connect again later: %s", frame.GetGoAway().Reason)
	case frame.GetWelcome() == nil:
		return nil, errors.New("the first frame was no welcome")
	}
	return frame.GetWelcome(), nil
}

// read handles frames until the stream ends. A server that has sent one ping sends one each interval; an older server
// may send none. After a standstill of this process a frame may have waited while the server gave the stream up, and a
// timer that is due may still be behind it. So the clock is read before each frame is handled.
func (c *connection) read(ctx context.Context, stream pb.ToolHost_ConnectClient, silence time.Duration) error {
	var silent atomic.Bool
	var watch *time.Timer
	var handled time.Time // the end of the last frame's handling, once there is a watch
	defer func() {
		if watch != nil {
			watch.Stop()
		}
	}()
	for {
		frame, err := stream.Recv()
		if watch != nil {
			watch.Stop()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && silent.Load():
			return fmt.Errorf("the server sent nothing for %v", silence)
		case err != nil:
			return err
		case watch != nil && c.host.now().Sub(handled) > silence:
			return fmt.Errorf("no frame was read for %v; the server may have given the host up", silence)
		}
		c.onFrame(ctx, frame)
		if frame.GetPing() != nil && watch == nil {
			watch = time.AfterFunc(silence, func() {
				silent.Store(true)
				c.abandon()
			})
		}
		if watch != nil {
			handled = c.host.now()
			watch.Reset(silence)
		}
	}
}

func (c *connection) beat(ctx context.Context, interval time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.host.heartbeat()
		case <-ctx.Done():
			return
		}
	}
}

func (c *connection) onFrame(ctx context.Context, frame *pb.ConnectResponse) {
	switch frame := frame.Frame.(type) {
	case *pb.ConnectResponse_CallRequest:
		c.host.onCallRequest(frame.CallRequest)
	case *pb.ConnectResponse_Cancel:
		c.host.onCancel(frame.Cancel)
	case *pb.ConnectResponse_ResultAck:
		c.host.onCallOver(frame.ResultAck)
	case *pb.ConnectResponse_LeaseLost:
		c.host.onLeaseLost(frame.LeaseLost)
	case *pb.ConnectResponse_InputResponse:
		c.host.onInputResponse(frame.InputResponse)
	case *pb.ConnectResponse_ProgressAck:
		c.host.onProgressAck(frame.ProgressAck)
	case *pb.ConnectResponse_ExtensionRequest:
		c.host.onExtensionRequest(ctx, c, frame.ExtensionRequest)
	case *pb.ConnectResponse_OpenRuntime:
		c.host.runtimes.open(frame.OpenRuntime)
	case *pb.ConnectResponse_CloseRuntime:
		go c.host.runtimes.close(context.Background(), frame.CloseRuntime.RuntimeId)
	case *pb.ConnectResponse_Ping:
		c.host.onPing(frame.Ping)
	case *pb.ConnectResponse_GoAway:
		c.host.onGoAway(c, frame.GoAway)
	case *pb.ConnectResponse_ProtocolError:
		c.host.onProtocolError(frame.ProtocolError)
	}
}
