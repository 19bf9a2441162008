package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/grpc"
)

// maxRejectionBytes is the contract's bound on the message of a rejected call.
const maxRejectionBytes = 4 << 10

// Bounds on results that wait for their acknowledgement. At either bound the host accepts no more calls.
const (
	maxUnacknowledged      = 1024
	maxUnacknowledgedBytes = 64 << 20
)

// maxStatusBytes is the length of the host's status that the server shows.
const maxStatusBytes = 1 << 10

// Frames to and from the server, in the order of a call's life. Each function whose name begins with "on" takes the lock;
// the others must be called with it held, unless they say otherwise.

func (h *Host) attach(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connections++
	hello := h.hello()
	c.credit = hello.InitialCredit
	c.outbox.push(&pb.ConnectRequest{Frame: &pb.ConnectRequest_Hello{Hello: hello}})
	h.connection = c
}

func (h *Host) detach(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connection = nil
	c.welcomed = false
	c.outbox.finish()
}

func (h *Host) hello() *pb.Hello {
	hello := &pb.Hello{
		ProtocolVersion: 1,
		HostId:          h.options.HostID,
		Sdk:             "go/" + grpc.Version,
		InitialCredit:   h.freeSlots(),
		OpenRuntimes:    h.runtimes.ids(),
		Labels:          h.options.Labels,
		// Without a call and under the same name, this process proves that it did not begin the call.
		InstanceId:   fmt.Sprintf("%s.%d", h.instance, h.forgotten),
		ConnectionNo: h.connections,
	}
	for _, tool := range h.tools {
		hello.Capabilities = append(hello.Capabilities,
			&pb.Capability{Capability: &pb.Capability_Tool{Tool: tool.declaration}})
	}
	hello.Capabilities = append(hello.Capabilities, h.extensions.capabilities...)
	for key, tracked := range h.calls {
		hello.CallsInHand = append(hello.CallsInHand, &pb.CallInHand{
			CallId: key.callID, Attempt: key.attempt, LeaseToken: tracked.leaseToken, Finished: tracked.outcome != nil,
		})
	}
	return hello
}

func (h *Host) freeSlots() uint64 {
	count, bytes := 0, 0
	for _, tracked := range h.calls {
		if tracked.outcome != nil {
			count++
			bytes += tracked.outcome.bytes()
		}
	}
	if h.draining || count >= maxUnacknowledged || bytes >= maxUnacknowledgedBytes {
		return 0
	}
	return uint64(max(0, h.options.Concurrency-h.running))
}

func (h *Host) onWelcome(c *connection, welcome *pb.Welcome) {
	h.mu.Lock()
	c.welcomed, c.welcomedAt = true, time.Now()
	h.bound = frameBound(welcome.MaxFrameBytes)
	h.readVerdicts(welcome.Capabilities)
	for _, verdict := range welcome.Calls {
		switch verdict.Disposition {
		case pb.CallDisposition_CALL_DISPOSITION_STOP, pb.CallDisposition_CALL_DISPOSITION_ALREADY_RECORDED:
			h.forgetCall(verdict)
		}
	}
	for _, tracked := range h.calls {
		h.sendOutcome(tracked)
		h.sendCheckpoint(tracked)
		for _, waiting := range slices.Clone(tracked.questions) {
			h.sendQuestion(waiting)
		}
		h.sendLastState(tracked)
	}
	h.growCredit()
	h.sendCredit()
	if h.draining {
		h.send(drainingFrame())
	}
	h.mu.Unlock()
	if h.options.OnReady != nil {
		if _, err := safely(func() (any, error) { h.options.OnReady(); return nil, nil }); err != nil {
			slog.Error("OnReady failed", "error", err)
		}
	}
}

// readVerdicts reports the tools and extensions that the server refused. If it refused all of them, the host ends once it
// has delivered the results of its calls. It stays if one was refused as weaker: an operator may accept that declaration,
// and the server then tells the host to connect again.
func (h *Host) readVerdicts(verdicts []*pb.CapabilityVerdict) {
	var refused []string
	mayBeAccepted := false
	for _, verdict := range verdicts {
		if !verdict.Accepted {
			slog.Warn("the server refused a tool or extension", "name", verdict.Name, "reason", verdict.Reason)
			refused = append(refused, verdict.Name+": "+verdict.Reason)
			mayBeAccepted = mayBeAccepted || verdict.Refusal == pb.CapabilityRefusal_CAPABILITY_REFUSAL_WEAKER
		}
	}
	if mayBeAccepted || len(refused) == 0 || len(refused) < len(h.tools)+len(h.extensions.capabilities) {
		return
	}
	select {
	case h.unwanted <- &RefusedError{Reason: "it refused every tool: " + strings.Join(refused, "; ")}:
	default: // the host ends already
	}
}

func (h *Host) onCallRequest(request *pb.CallRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connection.spent++
	if tracked := h.known(request); tracked != nil {
		h.answerKnown(tracked, request.LeaseToken)
		h.grantCredit()
		return
	}
	run, reason, err := h.check(request)
	if err != nil {
		h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_CallRejected{CallRejected: &pb.CallRejected{
			CallId: request.CallId, Attempt: request.Attempt, Reason: reason,
			Message: cut(err.Error(), maxRejectionBytes),
		}}})
		h.grantCredit()
		return
	}
	h.sendAccepted(request.CallId, request.Attempt)
	h.start(request, run)
}

// known is the call, if the host has it. The result of another call with the same id is dropped.
func (h *Host) known(request *pb.CallRequest) *trackedCall {
	tracked := h.calls[keyOf(request)]
	switch {
	case tracked == nil || tracked.call.IdempotencyKey == request.IdempotencyKey:
		return tracked
	case tracked.outcome != nil:
		h.forgetCall(request)
		h.noteIdle()
	}
	return nil
}

func (h *Host) answerKnown(tracked *trackedCall, leaseToken string) {
	tracked.leaseToken = leaseToken
	if tracked.outcome == nil {
		h.sendAccepted(tracked.call.CallID, tracked.call.Attempt)
	}
	h.sendOutcome(tracked)
}

func (h *Host) sendAccepted(callID string, attempt uint32) {
	h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_CallAccepted{
		CallAccepted: &pb.CallAccepted{CallId: callID, Attempt: attempt},
	}})
}

func (h *Host) check(request *pb.CallRequest) (invocation, pb.RejectReason, error) {
	if h.draining {
		return nil, pb.RejectReason_REJECT_REASON_DRAINING, fmt.Errorf("the host shuts down")
	}
	if _, taken := h.calls[keyOf(request)]; taken {
		return nil, pb.RejectReason_REJECT_REASON_BUSY, fmt.Errorf("another call of this id still runs here")
	}
	if h.freeSlots() == 0 {
		return nil, pb.RejectReason_REJECT_REASON_BUSY, fmt.Errorf("no room for another call")
	}
	for _, tool := range h.tools {
		if tool.declaration.Name == request.Tool {
			run, err := tool.prepare(request.ArgumentsJson)
			return run, pb.RejectReason_REJECT_REASON_BAD_ARGUMENTS, err
		}
	}
	return nil, pb.RejectReason_REJECT_REASON_UNKNOWN_TOOL, fmt.Errorf("this host has no tool %q", request.Tool)
}

func (h *Host) start(request *pb.CallRequest, run invocation) {
	ctx, stop := context.WithCancel(context.Background())
	tracked := &trackedCall{
		call:       newCall(ctx, h, request),
		leaseToken: request.LeaseToken,
		stop:       stop,
		ended:      make(chan struct{}),
	}
	if request.RuntimeId != "" {
		run = h.runtimes.afterOpening(request.RuntimeId, run)
	}
	h.calls[tracked.key()] = tracked
	h.running++
	go func() {
		outcome := maybe("the tool ended its goroutine")
		defer func() {
			stop()
			h.onEnd(tracked, outcome)
		}()
		outcome = outcomeOf(ctx, tracked.call, run)
	}()
}

// safely converts a panic into an error.
func safely[T any](run func() (T, error)) (value T, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return run()
}

func (h *Host) onEnd(tracked *trackedCall, outcome *outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(tracked.ended)
	h.running--
	if h.calls[tracked.key()] == tracked && tracked.outcome == nil { // otherwise the call was dropped or given up
		if h.stopping && outcome.stopped {
			outcome = stoppedOutcome()
		}
		h.recordOutcome(tracked, outcome)
	}
	h.grantCredit()
	h.noteIdle()
}

func (h *Host) recordOutcome(tracked *trackedCall, outcome *outcome) {
	if tracked.cancelling && outcome.failure != nil {
		delete(h.calls, tracked.key())
		h.forgotten++
		stopped := pb.CancelOutcome_CANCEL_OUTCOME_STOPPED
		if outcome.failure.Effect == pb.AttemptEffect_ATTEMPT_EFFECT_NONE {
			stopped = pb.CancelOutcome_CANCEL_OUTCOME_NOT_BEGUN
		}
		h.acknowledgeCancel(tracked.key(), stopped)
		return
	}
	if tracked.cancelling {
		h.acknowledgeCancel(tracked.key(), pb.CancelOutcome_CANCEL_OUTCOME_FINISHED)
	}
	tracked.outcome = outcome
	h.sendOutcome(tracked)
}

func (h *Host) sendOutcome(tracked *trackedCall) {
	if tracked.outcome != nil {
		h.send(tracked.outcomeFrame(h.bound))
	}
}

// keepCheckpoint keeps the last checkpoint of a call, to be repeated after a reconnect. It takes the lock.
func (h *Host) keepCheckpoint(call *Call, progress *pb.Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tracked, known := h.calls[keyOf(progress)]; known && tracked.call == call {
		tracked.checkpoint = progress
	}
}

func (h *Host) sendCheckpoint(tracked *trackedCall) {
	if tracked.checkpoint != nil && tracked.outcome == nil {
		h.send(progressFrame(h.bound, tracked.checkpoint))
	}
}

// onProtocolError gives up what the server would refuse again on the next connection: a failure replaces a result; of a
// call that still runs, the newest question gets no answer, or without one its states are not recorded.
func (h *Host) onProtocolError(broken *pb.ProtocolError) {
	slog.Error("the server reports a protocol error", "message", broken.Message)
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, tracked := range h.calls {
		switch {
		case key.callID != broken.CallId:
		case tracked.outcome != nil:
			tracked.outcome = refusal(broken.Message)
		default:
			tracked.refuseNewest(cut(broken.Message, maxRefusalBytes))
		}
	}
}

func (h *Host) onCancel(cancel *pb.Cancel) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tracked, known := h.calls[keyOf(cancel)]
	switch {
	case !known:
		h.acknowledgeCancel(keyOf(cancel), pb.CancelOutcome_CANCEL_OUTCOME_UNKNOWN)
	case tracked.outcome != nil:
		h.acknowledgeCancel(keyOf(cancel), pb.CancelOutcome_CANCEL_OUTCOME_FINISHED)
	case !tracked.cancelling:
		tracked.cancelling = true
		tracked.stop()
		go h.onGraceOver(tracked, max(cancel.GracePeriod.AsDuration(), time.Second))
	}
}

func (h *Host) onGraceOver(tracked *trackedCall, grace time.Duration) {
	select {
	case <-tracked.ended:
	case <-time.After(grace):
		h.mu.Lock()
		defer h.mu.Unlock()
		h.acknowledgeCancel(tracked.key(), pb.CancelOutcome_CANCEL_OUTCOME_CANNOT)
	}
}

func (h *Host) acknowledgeCancel(key callKey, outcome pb.CancelOutcome) {
	h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_CancelAck{
		CancelAck: &pb.CancelAck{CallId: key.callID, Attempt: key.attempt, Outcome: outcome},
	}})
}

func (h *Host) onCallOver(ref callRef) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropCall(ref)
	h.grantCredit()
	h.noteIdle()
}

func (h *Host) onLeaseLost(ref callRef) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetCall(ref)
	h.grantCredit()
	h.noteIdle()
}

// forgetCall drops a call that the server may not have recorded.
func (h *Host) forgetCall(ref callRef) {
	if _, known := h.calls[keyOf(ref)]; known {
		h.forgotten++
	}
	h.dropCall(ref)
}

func (h *Host) dropCall(ref callRef) {
	if tracked, known := h.calls[keyOf(ref)]; known {
		delete(h.calls, keyOf(ref))
		tracked.stop()
	}
}

func (h *Host) onPing(ping *pb.Ping) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_Pong{Pong: &pb.Pong{Nonce: ping.Nonce}}})
}

func (h *Host) onGoAway(c *connection, goAway *pb.GoAway) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.reconnectAfter = goAway.ReconnectAfter.AsDuration()
	slog.Info("the server asks to connect again later", "reason", goAway.Reason, "after", c.reconnectAfter)
	c.close()
}

func (h *Host) heartbeat() {
	heartbeat := &pb.Heartbeat{}
	if h.options.Status != nil {
		status, err := safely(func() (string, error) { return h.options.Status(), nil })
		if err != nil {
			slog.Error("the function of the host's status failed", "error", err)
		}
		heartbeat.StatusText = cut(status, maxStatusBytes)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, tracked := range h.calls {
		if tracked.outcome == nil {
			heartbeat.Calls = append(heartbeat.Calls, &pb.CallRef{CallId: key.callID, Attempt: key.attempt})
		}
	}
	h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_Heartbeat{Heartbeat: heartbeat}})
}

func (h *Host) grantCredit() {
	if h.growCredit() {
		h.sendCredit()
	}
}

// growCredit gives credit for the calls that there is room for. It returns false if the server has as much already.
func (h *Host) growCredit() bool {
	c := h.connection
	if c == nil || c.spent+h.freeSlots() <= c.credit {
		return false
	}
	c.credit = c.spent + h.freeSlots()
	return true
}

func (h *Host) sendCredit() {
	h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_Credit{Credit: &pb.Credit{Total: h.connection.credit}}})
}

func drainingFrame() *pb.ConnectRequest {
	return &pb.ConnectRequest{Frame: &pb.ConnectRequest_Draining{
		Draining: &pb.Draining{Reason: "the host shuts down"},
	}}
}

// callRef is any frame about an attempt of a call.
type callRef interface {
	GetCallId() string
	GetAttempt() uint32
}

func keyOf(ref callRef) callKey { return callKey{ref.GetCallId(), ref.GetAttempt()} }
