package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	pb "agentloop/client/go/agentloop/v1"
)

// runtimesTimeout bounds the closing of all runtimes at the shutdown.
const runtimesTimeout = 5 * time.Second

// SetRuntime sets the functions that open and close the runtimes of tools with RequiresRuntime. It must be called before
// Run. The result of open is Call.Runtime. If it fails, the calls that need the runtime fail.
func SetRuntime[T any](
	h *Host, open func(context.Context, *pb.OpenRuntime) (T, error), close func(context.Context, T) error,
) {
	h.runtimes.openOne = func(ctx context.Context, request *pb.OpenRuntime) (any, error) { return open(ctx, request) }
	h.runtimes.closeOne = func(ctx context.Context, value any) error { return close(ctx, value.(T)) }
}

// runtimes are the open runtimes of a host. Each is opened once, and closed when its run is over.
type runtimes struct {
	openOne  func(context.Context, *pb.OpenRuntime) (any, error)
	closeOne func(context.Context, any) error

	mu     sync.Mutex
	opened map[string]*runtime
}

// runtime has a value, or an error, once it is ready.
type runtime struct {
	ready chan struct{}
	value any
	err   error
}

func newRuntimes() *runtimes {
	none := func(context.Context, *pb.OpenRuntime) (any, error) {
		return nil, errors.New("this host opens no runtimes")
	}
	return &runtimes{openOne: none, opened: map[string]*runtime{}}
}

func (r *runtimes) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.opened))
}

func (r *runtimes) open(request *pb.OpenRuntime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opened[request.RuntimeId] != nil {
		return
	}
	opening := &runtime{ready: make(chan struct{})}
	r.opened[request.RuntimeId] = opening
	go func() {
		defer close(opening.ready)
		opening.value, opening.err = safely(func() (any, error) { return r.openOne(context.Background(), request) })
	}()
}

// afterOpening delays a call until its runtime is open.
func (r *runtimes) afterOpening(id string, run invocation) invocation {
	r.mu.Lock()
	opening := r.opened[id]
	r.mu.Unlock()
	return func(ctx context.Context, call *Call) (any, error) {
		value, err := opening.wait(ctx)
		if err != nil {
			message := fmt.Sprintf("the runtime cannot be opened: %v", err)
			return nil, &ToolError{Message: message, Effect: pb.AttemptEffect_ATTEMPT_EFFECT_NONE}
		}
		call.Runtime = value
		return run(ctx, call)
	}
}

func (opening *runtime) wait(ctx context.Context) (any, error) {
	if opening == nil {
		return nil, errors.New("it was never opened")
	}
	select {
	case <-opening.ready:
		return opening.value, opening.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *runtimes) close(ctx context.Context, id string) {
	r.mu.Lock()
	opening := r.opened[id]
	delete(r.opened, id)
	r.mu.Unlock()
	value, err := opening.wait(ctx)
	if err != nil {
		return // the calls that needed it got the error
	}
	if _, err := safely(func() (any, error) { return nil, r.closeOne(ctx, value) }); err != nil {
		slog.Error("closing a runtime failed", "runtime", id, "error", err)
	}
}

// closeAll closes all runtimes, and waits at most runtimesTimeout.
func (r *runtimes) closeAll() {
	ctx, cancel := context.WithTimeout(context.Background(), runtimesTimeout)
	defer cancel()
	var closing sync.WaitGroup
	for _, id := range r.ids() {
		closing.Go(func() { r.close(ctx, id) })
	}
	closed := make(chan struct{})
	go func() {
		closing.Wait()
		close(closed)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}
