// Package host is a tool host for agentloop: it dials the server, serves the calls it is given and survives lost
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
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 5 * time.Second
	stableAfter  = time.Second // a connection that held this long was a good one: the backoff starts anew
)

// Options of a host. Only Server is required.
type Options struct {
	Server       string
	HostID       string            // names this process; made up by default
	Concurrency  int               // calls at a time; default 4
	DrainTimeout time.Duration     // for the calls in hand at the end; default 30 s
	Labels       map[string]string // for people
	Credentials  credentials.TransportCredentials
	OnReady      func() // called after each welcome
}

// Host has the tools of this process and the calls it has in hand, which outlive any one connection.
//
// It says the same thing about a call however often it is asked, and after each reconnect it says again what was not
// acknowledged.
type Host struct {
	options    Options
	extensions *extensions
	runtimes   *runtimes
	idle       chan struct{} // closed when the host is draining and has nothing in hand

	mu         sync.Mutex
	tools      []*tool
	inHand     map[callKey]*inHand
	running    int // tools at work, also for calls that nobody waits for any more
	connection *connection
	bound      frameBound
	draining   bool
}

// New makes a host that offers nothing yet.
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
	if options.Credentials == nil {
		options.Credentials = insecure.NewCredentials()
	}
	return &Host{
		options:    options,
		extensions: newExtensions(),
		runtimes:   newRuntimes(),
		idle:       make(chan struct{}),
		inHand:     map[callKey]*inHand{},
	}
}

// ID is how the host names itself to the server.
func (h *Host) ID() string { return h.options.HostID }

// Run serves until ctx is done, then takes no more calls and finishes those in hand. The error tells that the server
// address makes no sense, or that calls were left in hand.
func (h *Host) Run(ctx context.Context) error {
	channel, err := h.dial()
	if err != nil {
		return err
	}
	defer channel.Close()

	served := make(chan struct{})
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		defer close(served)
		h.serveForEver(serving, pb.NewToolHostClient(channel))
	}()

	<-ctx.Done()
	h.drain()
	select {
	case <-h.idle:
	case <-time.After(h.options.DrainTimeout):
		err = fmt.Errorf("left with %d calls in hand", h.countInHand())
	}
	if h.leave(err == nil) {
		select {
		case <-served:
		case <-time.After(2 * closeTimeout):
		}
	}
	h.runtimes.closeAll()
	return err
}

// Go sets TCP_NODELAY on every connection by itself.
func (h *Host) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(h.options.Server,
		grpc.WithTransportCredentials(h.options.Credentials),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: maxBackoff,
		}),
	)
}

func (h *Host) serveForEver(ctx context.Context, client pb.ToolHostClient) {
	wait := firstBackoff
	for ctx.Err() == nil {
		c := &connection{host: h, outbox: newOutbox()}
		if err := c.serve(ctx, client); err != nil && ctx.Err() == nil {
			slog.Warn("connection to the server", "server", h.options.Server, "error", err)
		}
		if c.left {
			return
		}
		if c.lasted() > stableAfter {
			wait = firstBackoff
		}
		select {
		case <-time.After(max(c.reconnectAfter, mathrand.N(wait))):
		case <-ctx.Done():
		}
		wait = min(2*wait, maxBackoff)
	}
}

// drain takes no more calls.
func (h *Host) drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	h.send(drainingFrame())
	h.noteIdle()
}

// leave ends the connection, and tells whether there is one to wait for.
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
	return len(h.inHand)
}

// noteIdle is called with the lock held.
func (h *Host) noteIdle() {
	if !h.draining || h.running > 0 || len(h.inHand) > 0 {
		return
	}
	select {
	case <-h.idle:
	default:
		close(h.idle)
	}
}

// send is called with the lock held. Without a welcome the frame is dropped: whatever matters is said again after the
// next one.
func (h *Host) send(frame *pb.ConnectRequest) {
	if h.connection != nil && h.connection.welcomed {
		h.connection.outbox.push(frame)
	}
}

// sendWhenRoom waits while much is queued already. The frame is made for the connection that it is sent on.
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
