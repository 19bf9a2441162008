package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// What the contract allows.
const (
	maxResultBytes     = 3 << 20
	maxChunkBytes      = 64 << 10
	maxCheckpointBytes = 64 << 10
	maxProgressBytes   = 4 << 10
)

// Enough to say why; what a model reads of a failure should not crowd out the conversation.
const (
	maxFailureBytes = 64 << 10
	maxRefusalBytes = 4 << 10
	maxRetryDelay   = 7 * 24 * time.Hour // no call may take longer
)

// ToolError is returned by a tool that knows how it failed.
type ToolError struct {
	Message    string
	Retryable  bool
	RetryDelay time.Duration
	Effect     pb.AttemptEffect // what is known of its effects
}

func (e *ToolError) Error() string { return e.Message }

// Call is one call, as its tool sees it. It is stopped by its context.
type Call struct {
	CallID         string
	Attempt        uint32
	IdempotencyKey string
	Checkpoint     []byte    // nil where the last try saved none
	Deadline       time.Time // the call is given up after this
	RunID          string
	SessionID      string
	TurnID         string
	Traceparent    string
	Runtime        any // what the host opened for the run, where the tool needs it

	host      *Host
	stopped   <-chan struct{}
	questions atomic.Uint32 // that it has asked
	mu        sync.Mutex
	chunks    uint64
}

func newCall(ctx context.Context, h *Host, request *pb.CallRequest) *Call {
	return &Call{
		CallID:         request.CallId,
		Attempt:        request.Attempt,
		IdempotencyKey: request.IdempotencyKey,
		Checkpoint:     request.Checkpoint,
		Deadline:       request.Deadline.AsTime(),
		RunID:          request.RunId,
		SessionID:      request.SessionId,
		TurnID:         request.TurnId,
		Traceparent:    request.Traceparent,
		host:           h,
		stopped:        ctx.Done(),
	}
}

// Progress says how far the call is, from 0 to 1.
func (c *Call) Progress(message string, fraction float64) {
	c.progress(&pb.Progress{Message: message, Fraction: &fraction})
}

// SaveCheckpoint has the server keep what the next try is given.
func (c *Call) SaveCheckpoint(checkpoint []byte) error {
	if len(checkpoint) > maxCheckpointBytes {
		return fmt.Errorf("a checkpoint has at most %d bytes", maxCheckpointBytes)
	}
	c.progress(&pb.Progress{Checkpoint: append([]byte{}, checkpoint...)})
	return nil
}

func (c *Call) progress(progress *pb.Progress) {
	progress.CallId, progress.Attempt = c.CallID, c.Attempt
	progress.Message = cut(progress.Message, maxProgressBytes)
	frame := &pb.ConnectRequest{Frame: &pb.ConnectRequest_Progress{Progress: progress}}
	c.host.sendWhenRoom(func(bound frameBound) *pb.ConnectRequest {
		if !bound.takes(frame) {
			slog.Warn("a checkpoint is larger than the server takes, and left out", "call", c.CallID)
			progress.Checkpoint = nil
		}
		return frame
	})
}

// Write shows output to whoever watches. What is said while the server is out of reach is lost.
func (c *Call) Write(data []byte) (int, error) {
	c.output(data, pb.OutputStream_OUTPUT_STREAM_STDOUT)
	return len(data), nil
}

// WriteError is Write for complaints.
func (c *Call) WriteError(data []byte) (int, error) {
	c.output(data, pb.OutputStream_OUTPUT_STREAM_STDERR)
	return len(data), nil
}

func (c *Call) output(data []byte, stream pb.OutputStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(data) > 0 {
		size := min(len(data), maxChunkBytes)
		c.chunks++
		c.host.sendWhenRoom(func(bound frameBound) *pb.ConnectRequest {
			size = bound.beside(c.CallID, size)
			return &pb.ConnectRequest{Frame: &pb.ConnectRequest_OutputChunk{OutputChunk: &pb.OutputChunk{
				CallId: c.CallID, Attempt: c.Attempt, ChunkSeq: c.chunks, Stream: stream, Data: bytes.Clone(data[:size]),
			}}}
		})
		data = data[size:]
	}
}

// callKey names a try of a call.
type callKey struct {
	callID  string
	attempt uint32
}

// inHand is a call from its request until its result is acknowledged.
type inHand struct {
	call       *Call
	leaseToken string
	stop       context.CancelFunc
	ended      chan struct{} // closed when the tool has returned
	outcome    *outcome      // nil while the tool runs
	asked      map[string]*asked
	cancelling bool
}

func (held *inHand) key() callKey { return callKey{held.call.CallID, held.call.Attempt} }

// Output is what a tool returns that shows pictures beside its text.
type Output struct {
	Text   string
	Images []*pb.Image
}

// outcome is what a tool returned: an output, or a failure.
type outcome struct {
	output  string
	images  []*pb.Image
	failure *ToolError
}

// outcomeOf runs a tool to its end. Whatever goes wrong is an outcome, also where it is in what the tool returns.
func outcomeOf(ctx context.Context, call *Call, run invocation) *outcome {
	settled, err := safely(func() (*outcome, error) { return newOutcome(run(ctx, call)), nil })
	if err != nil {
		return maybe(err.Error())
	}
	return settled
}

// newOutcome calls what the tool returned, which may panic.
func newOutcome(value any, err error) *outcome {
	var failure *ToolError
	switch {
	case errors.As(err, &failure) && failure == nil:
		return maybe("the tool failed and does not say why")
	case failure != nil:
		told := *failure
		told.Message = cut(told.Message, maxFailureBytes)
		told.RetryDelay = max(0, min(told.RetryDelay, maxRetryDelay))
		return &outcome{failure: &told}
	case err != nil:
		return maybe(err.Error())
	}
	shown, is := value.(Output)
	if is {
		value = shown.Text
	}
	output, err := toText(value)
	size := len(output)
	for _, image := range shown.Images {
		size += proto.Size(image)
	}
	if err == nil && size > maxResultBytes {
		err = fmt.Errorf("the result has %d bytes, the limit is %d", size, maxResultBytes)
	}
	if err != nil {
		return done(err.Error())
	}
	return &outcome{output: output, images: shown.Images}
}

// maybe is a failure of a tool that may have had an effect.
func maybe(message string) *outcome {
	message = cut(message, maxFailureBytes)
	return &outcome{failure: &ToolError{Message: message, Effect: pb.AttemptEffect_ATTEMPT_EFFECT_MAYBE}}
}

// done is what is told in place of a result that cannot be.
func done(message string) *outcome {
	message = cut(message, maxFailureBytes)
	return &outcome{failure: &ToolError{Message: message, Effect: pb.AttemptEffect_ATTEMPT_EFFECT_DONE}}
}

// refused takes the place of a result that the server refuses, in its words.
func refused(words string) *outcome {
	return done("the server refused the result: " + cut(words, maxRefusalBytes))
}

// cutToFit takes the place of an outcome whose frame has so many bytes, where the server takes only so many. Of a
// failure the beginning is left.
func (o *outcome) cutToFit(size, most int) *outcome {
	if o.failure == nil {
		return done(fmt.Sprintf("the result has %d bytes with its frame; the server takes %d", size, most))
	}
	failure := *o.failure
	failure.Message = cut(failure.Message, len(failure.Message)-(size-most))
	return &outcome{failure: &failure}
}

// toText is what the model reads: a string as it is, anything else as JSON.
func toText(value any) (string, error) {
	if text, ok := value.(string); ok {
		return valid(text), nil
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(text.String(), "\n"), err
}

// offer says the outcome, under the lease that the call has now. One that is larger than the server takes is a failure
// from here on.
func (held *inHand) offer(bound frameBound) *pb.ConnectRequest {
	frame := held.frame()
	if bound.takes(frame) {
		return frame
	}
	held.outcome = held.outcome.cutToFit(proto.Size(frame), bound.bytes())
	return held.frame()
}

func (held *inHand) frame() *pb.ConnectRequest {
	callID, attempt := held.call.CallID, held.call.Attempt
	failure := held.outcome.failure
	if failure == nil {
		return &pb.ConnectRequest{Frame: &pb.ConnectRequest_CallResult{CallResult: &pb.CallResult{
			CallId: callID, Attempt: attempt, LeaseToken: held.leaseToken,
			Output: held.outcome.output, Images: held.outcome.images,
		}}}
	}
	failed := &pb.CallFailed{
		CallId: callID, Attempt: attempt, LeaseToken: held.leaseToken,
		Message:   failure.Message,
		Retryable: failure.Retryable,
		Effect:    failure.Effect,
	}
	if failure.RetryDelay > 0 {
		failed.RetryDelay = durationpb.New(failure.RetryDelay)
	}
	return &pb.ConnectRequest{Frame: &pb.ConnectRequest_CallFailed{CallFailed: failed}}
}
