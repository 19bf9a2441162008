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

// Bounds of the contract.
const (
	maxResultBytes     = 3 << 20
	maxChunkBytes      = 64 << 10
	maxCheckpointBytes = 64 << 10
	maxProgressBytes   = 4 << 10
)

// Bounds on failures, so that they do not crowd out the conversation.
const (
	maxFailureBytes = 64 << 10
	maxRefusalBytes = 4 << 10
	maxRetryDelay   = 7 * 24 * time.Hour // no call may take longer
)

// ToolError is the failure of a call, for tools that know its details.
type ToolError struct {
	Message    string
	Retryable  bool
	RetryDelay time.Duration
	Effect     pb.AttemptEffect // says if the call changed something
}

func (e *ToolError) Error() string { return e.Message }

// Call is one call, for its tool. It is stopped by its context.
type Call struct {
	CallID         string
	Attempt        uint32
	IdempotencyKey string
	Checkpoint     []byte // nil if no earlier attempt saved one
	ResumeState    []byte // state that an earlier attempt left: go on from it; nil: begin
	// Answers to the questions of earlier attempts. A question of the same name gets its answer from here.
	Answers   []*pb.InputResponse
	Deadline  time.Time // the server cancels the call then
	RunID     string
	SessionID string
	TurnID    string
	// Who started the run: the tool can act with that person's rights. The name is empty where nobody was asked; nil if the
	// server does not tell.
	Caller      *pb.Caller
	Traceparent string
	Runtime     any // runtime that the host opened for the run, if the tool requires one

	host    *Host
	stopped <-chan struct{}
	// questions counts those with an earlier answer, too: an unnamed question has the same number in each attempt.
	questions atomic.Uint32
	asked     atomic.Uint32 // number of questions without an earlier answer
	states    uint64        // number of resume states saved so far; guarded by the host's lock
	mu        sync.Mutex
	chunks    uint64
}

func newCall(ctx context.Context, h *Host, request *pb.CallRequest) *Call {
	deadline := request.Deadline.AsTime()
	if request.TimeLeft != nil { // this clock may differ from the server's
		deadline = time.Now().Add(request.TimeLeft.AsDuration())
	}
	return &Call{
		CallID:         request.CallId,
		Attempt:        request.Attempt,
		IdempotencyKey: request.IdempotencyKey,
		Checkpoint:     request.Checkpoint,
		ResumeState:    request.ResumeState,
		Answers:        request.Answers,
		Deadline:       deadline,
		RunID:          request.RunId,
		SessionID:      request.SessionId,
		TurnID:         request.TurnId,
		Caller:         request.Caller,
		Traceparent:    request.Traceparent,
		host:           h,
		stopped:        ctx.Done(),
	}
}

// ProgressMessage reports progress as a text for people, where no fraction is known.
func (c *Call) ProgressMessage(message string) {
	c.progress(&pb.Progress{Message: message})
}

// Progress reports progress as a text for people and a fraction from 0 to 1.
func (c *Call) Progress(message string, fraction float64) {
	c.progress(&pb.Progress{Message: message, Fraction: &fraction})
}

// SaveCheckpoint stores a checkpoint on the server, which gives it to the next attempt. After each reconnect the last one is
// sent again.
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
	if progress.Checkpoint != nil {
		c.host.keepCheckpoint(c, progress)
	}
	c.host.sendWhenRoom(func(bound frameBound) *pb.ConnectRequest { return progressFrame(bound, progress) })
}

// progressFrame is the frame of a progress. A checkpoint larger than the server's bound is left out.
func progressFrame(bound frameBound, progress *pb.Progress) *pb.ConnectRequest {
	frame := &pb.ConnectRequest{Frame: &pb.ConnectRequest_Progress{Progress: progress}}
	if bound.fits(frame) {
		return frame
	}
	slog.Warn("checkpoint dropped: it is larger than the server accepts", "call", progress.CallId)
	return &pb.ConnectRequest{Frame: &pb.ConnectRequest_Progress{Progress: &pb.Progress{
		CallId: progress.CallId, Attempt: progress.Attempt, Message: progress.Message, Fraction: progress.Fraction,
	}}}
}

// Write sends output to the subscribers of the run. It is dropped while the server cannot be reached.
func (c *Call) Write(data []byte) (int, error) {
	c.output(data, pb.OutputStream_OUTPUT_STREAM_STDOUT)
	return len(data), nil
}

// WriteError is Write for the standard error stream.
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
			size = bound.payloadBytes(c.CallID, size)
			return &pb.ConnectRequest{Frame: &pb.ConnectRequest_OutputChunk{OutputChunk: &pb.OutputChunk{
				CallId: c.CallID, Attempt: c.Attempt, ChunkSeq: c.chunks, Stream: stream, Data: bytes.Clone(data[:size]),
			}}}
		})
		data = data[size:]
	}
}

// callKey names an attempt of a call.
type callKey struct {
	callID  string
	attempt uint32
}

// trackedCall is the host's state of a call, from its request until its result is acknowledged.
type trackedCall struct {
	call       *Call
	leaseToken string
	stop       context.CancelFunc
	ended      chan struct{}     // closed when the tool has returned
	outcome    *outcome          // nil while the tool runs
	questions  []*openQuestion   // unanswered, in the order in which they were asked
	unrecorded []unrecordedState // by rising number; the last one is repeated after a reconnect
	checkpoint *pb.Progress      // the last one, or nil; repeated after a reconnect
	cancelling bool
}

func (tracked *trackedCall) GetCallId() string  { return tracked.call.CallID }
func (tracked *trackedCall) GetAttempt() uint32 { return tracked.call.Attempt }
func (tracked *trackedCall) key() callKey       { return keyOf(tracked) }

// Output is the result of a tool that returns more than a text.
type Output struct {
	Text   string
	Images []*pb.Image
	// Structured is a value that follows the tool's OutputSchemaJson. The model reads it as JSON if there is no text.
	Structured any
	Files      []*pb.FileContent
	Links      []*pb.Link
}

// outcome is the end of a call: an output, or a failure.
type outcome struct {
	output  string
	beside  *pb.CallResult // everything else; nil if there is nothing
	failure *ToolError
	stopped bool // the tool ended because its context is done
}

// bytes is the size of an outcome in memory, about.
func (o *outcome) bytes() int {
	if o.failure != nil {
		return len(o.failure.Message)
	}
	return len(o.output) + proto.Size(o.beside)
}

// outcomeOf runs a tool to its end. Every error and panic becomes a failure, also one in the tool's result.
func outcomeOf(ctx context.Context, call *Call, run invocation) *outcome {
	result, err := safely(func() (*outcome, error) { return newOutcome(run(ctx, call)), nil })
	if err != nil {
		return maybe(err.Error())
	}
	return result
}

// newOutcome converts a tool's result. It calls methods of the result, which may panic.
func newOutcome(value any, err error) *outcome {
	var failure *ToolError
	switch {
	case errors.As(err, &failure) && failure == nil:
		return maybe("the tool failed and does not say why")
	case failure != nil:
		bounded := *failure
		bounded.Message = cut(bounded.Message, maxFailureBytes)
		bounded.RetryDelay = max(0, min(bounded.RetryDelay, maxRetryDelay))
		return &outcome{failure: &bounded}
	case err != nil:
		failed := maybe(err.Error())
		failed.stopped = errors.Is(err, context.Canceled)
		return failed
	}
	whole, is := value.(Output)
	if is {
		value = whole.Text
	}
	output, err := toText(value)
	beside := &pb.CallResult{Images: whole.Images, Files: whole.Files, Links: whole.Links}
	if err == nil && whole.Structured != nil {
		var structured []byte
		structured, err = json.Marshal(whole.Structured)
		beside.StructuredJson = string(structured)
	}
	if size := len(output) + proto.Size(beside); err == nil && size > maxResultBytes {
		err = fmt.Errorf("the result has %d bytes, the limit is %d", size, maxResultBytes)
	}
	if err == nil {
		// What no frame can carry, such as a file name with invalid UTF-8, would end every connection.
		if _, unsendable := proto.Marshal(beside); unsendable != nil {
			err = fmt.Errorf("the result cannot be sent: %w", unsendable)
		}
	}
	if err != nil {
		return done(err.Error())
	}
	return &outcome{output: output, beside: beside}
}

// maybe is a failure of a call that may have changed something.
func maybe(message string) *outcome {
	message = cut(message, maxFailureBytes)
	return &outcome{failure: &ToolError{Message: message, Effect: pb.AttemptEffect_ATTEMPT_EFFECT_MAYBE}}
}

// stoppedOutcome is the failure of a call that the shutdown of the host stopped. It may be tried again, where that is safe.
func stoppedOutcome() *outcome {
	return &outcome{failure: &ToolError{
		Message: "the call was stopped before it ended", Retryable: true, Effect: pb.AttemptEffect_ATTEMPT_EFFECT_MAYBE,
	}}
}

// done is the failure that replaces a result that cannot be sent.
func done(message string) *outcome {
	message = cut(message, maxFailureBytes)
	return &outcome{failure: &ToolError{Message: message, Effect: pb.AttemptEffect_ATTEMPT_EFFECT_DONE}}
}

// refusal is the failure that replaces a result that the server refuses.
func refusal(serverMessage string) *outcome {
	return done("the server refused the result: " + cut(serverMessage, maxRefusalBytes))
}

// cutToFit replaces an outcome whose frame of size bytes is larger than the server's bound most. A failure keeps the
// beginning of its message.
func (o *outcome) cutToFit(size, most int) *outcome {
	if o.failure == nil {
		return done(fmt.Sprintf("the result has %d bytes with its frame; the server takes %d", size, most))
	}
	failure := *o.failure
	failure.Message = cut(failure.Message, len(failure.Message)-(size-most))
	return &outcome{failure: &failure}
}

// toText converts a result to the text that the model reads: a string as text, any other value as JSON.
func toText(value any) (string, error) {
	if text, ok := value.(string); ok {
		return valid(text), nil
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return valid(strings.TrimSuffix(text.String(), "\n")), err
}

// outcomeFrame is the frame of a call's outcome, under its current lease. A result larger than the server's bound becomes
// a failure for good.
func (tracked *trackedCall) outcomeFrame(bound frameBound) *pb.ConnectRequest {
	frame := tracked.frame()
	if bound.fits(frame) {
		return frame
	}
	tracked.outcome = tracked.outcome.cutToFit(proto.Size(frame), bound.bytes())
	return tracked.frame()
}

func (tracked *trackedCall) frame() *pb.ConnectRequest {
	callID, attempt := tracked.call.CallID, tracked.call.Attempt
	failure := tracked.outcome.failure
	if failure == nil {
		result := &pb.CallResult{
			CallId: callID, Attempt: attempt, LeaseToken: tracked.leaseToken, Output: tracked.outcome.output,
		}
		if beside := tracked.outcome.beside; beside != nil {
			result.Images, result.Files, result.Links = beside.Images, beside.Files, beside.Links
			result.StructuredJson = beside.StructuredJson
		}
		return &pb.ConnectRequest{Frame: &pb.ConnectRequest_CallResult{CallResult: result}}
	}
	failed := &pb.CallFailed{
		CallId: callID, Attempt: attempt, LeaseToken: tracked.leaseToken,
		Message:   failure.Message,
		Retryable: failure.Retryable,
		Effect:    failure.Effect,
	}
	if failure.RetryDelay > 0 {
		failed.RetryDelay = durationpb.New(failure.RetryDelay)
	}
	return &pb.ConnectRequest{Frame: &pb.ConnectRequest_CallFailed{CallFailed: failed}}
}
