// Package host is a tool host for agentloop. It connects to the server, runs the calls that it gets, and survives lost
// connections.
//
//	h := host.New(host.Options{Server: "127.0.0.1:50051"})
//	host.AddTool(h, declaration, func(ctx context.Context, call *host.Call, in struct{ A, B float64 }) (any, error) {
//		return in.A + in.B, nil
//	})
//	err := h.Run(ctx)
package host

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"sync"
	"time"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"
)

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	stableAfter  = time.Second // a connection that lasted longer resets the backoff

	stopGrace = 5 * time.Second // time that a stopped call has to end; its result has as long again to be delivered
)

// Options are the options of a host. Only Server is required.
type Options struct {
	Server       string            // host:port, or a URL; with https:// the connection is encrypted
	HostID       string            // id of this process; random by default
	Concurrency  int               // calls that run at a time; default 4
	DrainTimeout time.Duration     // time for running calls to finish at a shutdown; then they are stopped; default 30 s
	Labels       map[string]string // shown to people
	Credentials  credentials.TransportCredentials
	CA           []byte        // roots of the server's certificate, in PEM, for https://; the system's by default
	Certificate  []byte        // this host's certificate, in PEM
	Key          []byte        // the key of the certificate, in PEM
	Token        string        // the bearer token
	OnReady      func()        // called after each welcome; a panic is logged
	Status       func() string // the host's state, for people, cut to 1 KiB; called before each heartbeat; a panic is logged
}

// Host has the tools of this process and its calls, which outlive a connection.
//
// A call that comes a second time gets the same answer. After each reconnect the host repeats every result that the
// server has not acknowledged.
type Host struct {
	options    Options
	extensions *extensions
	runtimes   *runtimes
	idle       chan struct{} // closed when the host is draining and has no calls
	unwanted   chan error    // gets an error when the server refuses all tools and extensions
	stopGrace  time.Duration
	now        func() time.Time // its monotonic part, which counts, stands still while a machine with Linux or macOS sleeps

	instance string // random name of this process

	mu          sync.Mutex
	tools       []*tool
	calls       map[callKey]*trackedCall
	connections uint64 // streams so far
	forgotten   int    // calls begun here that `hello` names no more without an acknowledgement
	running     int    // running tools, including those of dropped calls
	connection  *connection
	bound       frameBound
	draining    bool
	stopping    bool // the running calls were told to stop
	gaveUp      bool // calls that did not stop are waited for no more
}

// New makes a host without tools and extensions.
func New(options Options) *Host {
	if options.HostID == "" {
		name, _ := os.Hostname()
		options.HostID = fmt.Sprintf("%s-%d-%s", name, os.Getpid(), rand.Text()[:8])
	}
	if options.Concurrency == 0 {
		options.Concurrency = 4
	}
	if options.DrainTimeout == 0 {
		options.DrainTimeout = 30 * time.Second
	}
	return &Host{
		options:    options,
		extensions: newExtensions(),
		runtimes:   newRuntimes(),
		idle:       make(chan struct{}),
		unwanted:   make(chan error, 1),
		stopGrace:  stopGrace,
		now:        time.Now,
		instance:   rand.Text(),
		calls:      map[callKey]*trackedCall{},
	}
}

// ID is the id of this process, which the server sees.
func (h *Host) ID() string { return h.options.HostID }

// Run serves until ctx is done, and connects again for as long as it takes. Then it accepts no more calls and finishes
// those that run. After DrainTimeout it stops them, and takes up to 10 s to report that. The error means that an option
// cannot be used, or that calls were not finished and acknowledged in time. A *RefusedError ends it at once, with the calls
// that run: the server refuses the host for a lasting reason, such as a wrong token. If the server refuses all tools and
// extensions, Run finishes the calls that it has, and returns a *RefusedError.
func (h *Host) Run(ctx context.Context) error {
	if _, err := proto.Marshal(h.hello()); err != nil {
		return fmt.Errorf("the declarations of the host cannot be sent: %w", err)
	}
	channel, err := h.dial()
	if err != nil {
		return err
	}

	served := make(chan error, 1)
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	go func() { served <- h.serveForEver(serving, channel) }()

	// Nothing but a refusal ends the service before leave.
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-h.unwanted:
	case refused := <-served:
		return h.giveUp(refused)
	}
	h.drain()
	idle, refused := h.awaitIdle(served, h.options.DrainTimeout)
	if !idle && refused == nil {
		h.stopCalls()
		idle, refused = h.awaitIdle(served, 2*h.stopGrace)
	}
	if refused != nil {
		return h.giveUp(refused)
	}
	if !idle {
		err = fmt.Errorf("shut down with %d calls unfinished or unacknowledged", h.countInHand())
	}
	if h.leave(idle) {
		select {
		case <-served:
		case <-time.After(2 * closeTimeout):
		}
	}
	h.runtimes.closeAll()
	return errors.Join(cause, err)
}

// awaitIdle waits until the host has no calls. It returns false after the timeout, and the error of a server that refuses
// the host.
func (h *Host) awaitIdle(served <-chan error, timeout time.Duration) (bool, error) {
	select {
	case <-h.idle:
		return true, nil
	case refused := <-served:
		return false, refused
	case <-time.After(timeout):
		return false, nil
	}
}

// giveUp stops the calls that run, and closes the runtimes. It returns the error.
func (h *Host) giveUp(err error) error {
	h.mu.Lock()
	for _, tracked := range h.calls {
		tracked.stop()
	}
	h.mu.Unlock()
	h.runtimes.closeAll()
	return err
}

// dial makes the channel. Go itself sets TCP_NODELAY on every connection.
func (h *Host) dial() (*grpc.ClientConn, error) {
	server, transport, err := h.options.transport()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient(server,
		grpc.WithTransportCredentials(transport),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: maxBackoff,
		}),
	)
}

// serveForEver connects again and again, until the host leaves or the server refuses it. Each connection has its own
// channel: a server that does not answer may still hold the TCP connection of the last one.
func (h *Host) serveForEver(ctx context.Context, channel *grpc.ClientConn) error {
	wait := firstBackoff
	for ctx.Err() == nil {
		c := &connection{host: h, outbox: newOutbox()}
		err := c.serve(ctx, pb.NewToolHostClient(channel))
		channel.Close()
		if refused := (*RefusedError)(nil); errors.As(err, &refused) && !c.left {
			return err
		}
		if err != nil && ctx.Err() == nil {
			slog.Warn("connection to the server lost", "server", h.options.url(), "error", err)
		}
		if c.left {
			return nil
		}
		if c.lasted() > stableAfter {
			wait = firstBackoff
		}
		select {
		case <-time.After(max(c.reconnectAfter, mathrand.N(wait))):
		case <-ctx.Done():
		}
		wait = min(2*wait, maxBackoff)
		if ctx.Err() != nil {
			return nil
		}
		if channel, err = h.dial(); err != nil {
			return err
		}
	}
	channel.Close()
	return nil
}

// drain begins the shutdown: the host accepts no more calls.
func (h *Host) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.send(drainingFrame())
	h.noteIdle()
}

// stopCalls stops the calls that run. Each is reported when it has ended, at the latest after the grace.
func (h *Host) stopCalls() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
	for _, tracked := range h.calls {
		tracked.stop()
	}
	time.AfterFunc(h.stopGrace, h.giveUpCalls)
}

// giveUpCalls reports the calls that did not stop.
func (h *Host) giveUpCalls() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gaveUp = true
	for _, tracked := range h.calls {
		switch {
		case tracked.outcome != nil:
		case tracked.cancelling: // the server knows that it does not stop
			h.forgetCall(tracked)
		default:
			h.recordOutcome(tracked, stoppedOutcome())
		}
	}
	h.noteIdle()
}

// leave closes the connection. It returns true if there is one to wait for.
func (h *Host) leave(goodbye bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.connection == nil || !h.connection.welcomed {
		return false
	}
	if goodbye {
		h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_Goodbye{Goodbye: &pb.Goodbye{Reason: "the host shuts down"}}})
	}
	h.connection.left = true
	h.connection.close()
	return true
}

func (h *Host) countInHand() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// noteIdle closes idle when the host has shut down. It must be called with the lock held.
func (h *Host) noteIdle() {
	if !h.draining || (h.running > 0 && !h.gaveUp) || len(h.calls) > 0 {
		return
	}
	select {
	case <-h.idle:
	default:
		close(h.idle)
	}
}

// send must be called with the lock held. Without a welcome the frame is dropped; everything that matters is repeated
// after the next one.
func (h *Host) send(frame *pb.ConnectRequest) {
	if h.connection != nil && h.connection.welcomed {
		h.connection.outbox.push(frame)
	}
}

// sendWhenRoom waits while the queue is full. The frame is built with the bound of the connection that it is sent on.
func (h *Host) sendWhenRoom(frame func(frameBound) *pb.ConnectRequest) {
	h.mu.Lock()
	c, bound := h.connection, h.bound
	if c != nil && !c.welcomed {
		c = nil
	}
	h.mu.Unlock()
	if c != nil {
		c.outbox.pushWhenRoom(frame(bound))
	}
}
