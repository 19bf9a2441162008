package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/protobuf/proto"
)

// The context of an extension's functions is done at the deadline, after which no answer counts.

// Hook is called at the points of its declaration, and returns a verdict. A nil verdict changes nothing.
type Hook func(ctx context.Context, request *pb.HookRequest, run *pb.Run) (*pb.HookVerdict, error)

// ContextSource returns the items that fit a query, the best first.
type ContextSource func(ctx context.Context, request *pb.ContextRequest, run *pb.Run) ([]*pb.ContextItem, error)

// Remember gets the entries that each finished run added to its session, and is called again until it succeeds. It may
// get the same run twice.
type Remember func(ctx context.Context, request *pb.RememberRequest, run *pb.Run) error

// Planner decides the next instruction of a run.
type Planner func(ctx context.Context, request *pb.PlanRequest, run *pb.Run) (*pb.Instruction, error)

// ExtensionError is the failure of an extension, for those that know if it is retryable.
type ExtensionError struct {
	Message   string
	Retryable bool // the server may ask again, here or on another host
}

func (e *ExtensionError) Error() string { return e.Message }

// extensions are the extensions of a host, by kind and name. They do not change once the host runs.
type extensions struct {
	capabilities []*pb.Capability
	hooks        map[string]Hook
	sources      map[string]contextSource
	planners     map[string]Planner
}

type contextSource struct {
	query    ContextSource
	remember Remember // nil if the source does not remember
}

func newExtensions() *extensions {
	return &extensions{hooks: map[string]Hook{}, sources: map[string]contextSource{}, planners: map[string]Planner{}}
}

// AddHook declares a hook. It must be called before Run, and panics if the host has a hook of this name.
func (h *Host) AddHook(declaration *pb.HookDeclaration, hook Hook) {
	refuseSecond(h.extensions.hooks, "hook", declaration.Name)
	h.extensions.declare(&pb.Capability{Capability: &pb.Capability_Hook{Hook: declaration}})
	h.extensions.hooks[declaration.Name] = hook
}

// AddContextSource declares a context source. It must be called before Run, and panics if the host has a source of this
// name. remember may be nil.
func (h *Host) AddContextSource(declaration *pb.ContextSourceDeclaration, query ContextSource, remember Remember) {
	refuseSecond(h.extensions.sources, "context source", declaration.Name)
	declaration.Remembers = remember != nil
	h.extensions.declare(&pb.Capability{Capability: &pb.Capability_ContextSource{ContextSource: declaration}})
	h.extensions.sources[declaration.Name] = contextSource{query, remember}
}

// AddPlanner declares a planner. It must be called before Run, and panics if the host has a planner of this name.
func (h *Host) AddPlanner(declaration *pb.PlannerDeclaration, planner Planner) {
	refuseSecond(h.extensions.planners, "planner", declaration.Name)
	h.extensions.declare(&pb.Capability{Capability: &pb.Capability_Planner{Planner: declaration}})
	h.extensions.planners[declaration.Name] = planner
}

// refuseSecond panics if there is one of this name.
func refuseSecond[T any](known map[string]T, kind, name string) {
	if _, taken := known[name]; taken {
		panic(fmt.Sprintf("the host has a %s %q already", kind, name))
	}
}

func (e *extensions) declare(capability *pb.Capability) {
	e.capabilities = append(e.capabilities, capability)
}

// respond calls the extension that a request names. An error becomes a failure response.
func (e *extensions) respond(
	ctx context.Context, request *pb.ExtensionRequest, bound frameBound,
) *pb.ExtensionResponse {
	response, err := safely(func() (*pb.ExtensionResponse, error) {
		response, err := e.answer(ctx, request)
		if err == nil {
			// A response that no frame can carry, such as one with invalid UTF-8, must not end the stream.
			response.RequestId = request.RequestId
			_, err = proto.Marshal(response)
		}
		if frame := extensionFrame(response); err == nil && !bound.fits(frame) {
			size, most := proto.Size(frame), bound.bytes()
			err = fmt.Errorf("the response has %d bytes with its frame; the server takes %d", size, most)
		}
		return response, err
	})
	if err != nil {
		response = &pb.ExtensionResponse{Response: &pb.ExtensionResponse_Failure{Failure: failureOf(request.Name, err)}}
	}
	response.RequestId = request.RequestId
	return response
}

func extensionFrame(response *pb.ExtensionResponse) *pb.ConnectRequest {
	return &pb.ConnectRequest{Frame: &pb.ConnectRequest_ExtensionResponse{ExtensionResponse: response}}
}

func (e *extensions) answer(ctx context.Context, request *pb.ExtensionRequest) (*pb.ExtensionResponse, error) {
	switch kind := request.Request.(type) {
	case *pb.ExtensionRequest_Hook:
		return e.hook(ctx, request.Name, kind.Hook, request.Run)
	case *pb.ExtensionRequest_Plan:
		return e.plan(ctx, request.Name, kind.Plan, request.Run)
	case *pb.ExtensionRequest_Context:
		return e.query(ctx, request.Name, kind.Context, request.Run)
	case *pb.ExtensionRequest_Remember:
		return e.remember(ctx, request.Name, kind.Remember, request.Run)
	}
	return nil, unknown(request.Name)
}

func (e *extensions) hook(
	ctx context.Context, name string, request *pb.HookRequest, run *pb.Run,
) (*pb.ExtensionResponse, error) {
	hook, known := e.hooks[name]
	if !known {
		return nil, unknown(name)
	}
	verdict, err := hook(ctx, request, run)
	if verdict == nil {
		verdict = &pb.HookVerdict{}
	}
	return &pb.ExtensionResponse{Response: &pb.ExtensionResponse_Hook{Hook: verdict}}, err
}

func (e *extensions) plan(
	ctx context.Context, name string, request *pb.PlanRequest, run *pb.Run,
) (*pb.ExtensionResponse, error) {
	planner, known := e.planners[name]
	if !known {
		return nil, unknown(name)
	}
	instruction, err := planner(ctx, request, run)
	if instruction == nil {
		instruction = &pb.Instruction{}
	}
	return &pb.ExtensionResponse{Response: &pb.ExtensionResponse_Instruction{Instruction: instruction}}, err
}

func (e *extensions) query(
	ctx context.Context, name string, request *pb.ContextRequest, run *pb.Run,
) (*pb.ExtensionResponse, error) {
	source, known := e.sources[name]
	if !known {
		return nil, unknown(name)
	}
	items, err := source.query(ctx, request, run)
	given := &pb.ContextItems{Items: items}
	return &pb.ExtensionResponse{Response: &pb.ExtensionResponse_Context{Context: given}}, err
}

func (e *extensions) remember(
	ctx context.Context, name string, request *pb.RememberRequest, run *pb.Run,
) (*pb.ExtensionResponse, error) {
	source, known := e.sources[name]
	if !known || source.remember == nil {
		return nil, unknown(name)
	}
	err := source.remember(ctx, request, run)
	return &pb.ExtensionResponse{Response: &pb.ExtensionResponse_Remembered{Remembered: &pb.Remembered{}}}, err
}

func unknown(name string) error {
	return &ExtensionError{Message: fmt.Sprintf("this host does not offer %q", name), Retryable: true}
}

func failureOf(name string, err error) *pb.ExtensionFailure {
	failure, cause := safely(func() (*pb.ExtensionFailure, error) {
		var known *ExtensionError
		if errors.As(err, &known) && known != nil {
			return &pb.ExtensionFailure{Message: cut(known.Message, maxRefusalBytes), Retryable: known.Retryable}, nil
		}
		slog.Error("an extension failed", "extension", name, "error", err)
		return &pb.ExtensionFailure{Message: cut(err.Error(), maxRefusalBytes)}, nil
	})
	if cause != nil {
		return &pb.ExtensionFailure{Message: "the extension failed and does not say why"}
	}
	return failure
}

func (h *Host) onExtensionRequest(ctx context.Context, c *connection, request *pb.ExtensionRequest) {
	go func() {
		if left := request.TimeLeft; left != nil { // without it, the deadline is by a clock that may differ from this one
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, left.AsDuration())
			defer cancel()
		}
		h.mu.Lock()
		bound := h.bound
		h.mu.Unlock()
		response := h.extensions.respond(ctx, request, bound)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.connection == c { // a response to a request of an earlier connection is dropped
			h.send(extensionFrame(response))
		}
	}()
}
