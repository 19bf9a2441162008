package host

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/grpc"
)

// maxRejectionBytes is what the contract allows.
const maxRejectionBytes = 4 << 10

// What the host says and is told, in the order of a call's life. Each function that begins with "on" takes the lock;
// the others are called with it held.

func (h *Host) attach(c *connection) {
	h.mu.Lock()
	defer h.mu.Unlock()
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
	}
	for _, tool := range h.tools {
		hello.Capabilities = append(hello.Capabilities,
			&pb.Capability{Capability: &pb.Capability_Tool{Tool: tool.declaration}})
	}
	hello.Capabilities = append(hello.Capabilities, h.extensions.capabilities...)
	for key, held := range h.inHand {
		hello.CallsInHand = append(hello.CallsInHand, &pb.CallInHand{
			CallId: key.callID, Attempt: key.attempt, LeaseToken: held.leaseToken, Finished: held.outcome != nil,
		})
	}
	return hello
}

func (h *Host) freeSlots() uint64 {
	if h.draining {
		return 0
	}
	return uint64(max(0, h.options.Concurrency-h.running))
}

func (h *Host) onWelcome(c *connection, welcome *pb.Welcome) {
	h.mu.Lock()
	c.welcomed, c.welcomedAt = true, time.Now()
	h.bound = frameBound(welcome.MaxFrameBytes)
	for _, verdict := range welcome.Capabilities {
		if !verdict.Accepted {
			slog.Warn("refused", "name", verdict.Name, "reason", verdict.Reason)
		}
	}
	for _, verdict := range welcome.Calls {
		switch verdict.Disposition {
		case pb.CallDisposition_CALL_DISPOSITION_STOP, pb.CallDisposition_CALL_DISPOSITION_ALREADY_RECORDED:
			h.forget(verdict)
		}
	}
	for _, held := range h.inHand {
		h.offerOutcome(held)
		for _, waits := range held.asked {
			h.sendQuestion(waits)
		}
	}
	h.sendCredit()
	if h.draining {
		h.send(drainingFrame())
	}
	h.mu.Unlock()
	if h.options.OnReady != nil {
		h.options.OnReady()
	}
}

func (h *Host) onCallRequest(request *pb.CallRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.known(request); held != nil {
		h.answerFromMemory(held, request.LeaseToken)
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

// known is the call, if it is in hand. What came of another that had its name is forgotten.
func (h *Host) known(request *pb.CallRequest) *inHand {
	held := h.inHand[keyOf(request)]
	switch {
	case held == nil || held.call.IdempotencyKey == request.IdempotencyKey:
		return held
	case held.outcome != nil:
		h.forget(request)
		h.noteIdle()
	}
	return nil
}

func (h *Host) answerFromMemory(held *inHand, leaseToken string) {
	held.leaseToken = leaseToken
	if held.outcome == nil {
		h.sendAccepted(held.call.CallID, held.call.Attempt)
	}
	h.offerOutcome(held)
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
	if _, taken := h.inHand[keyOf(request)]; taken {
		return nil, pb.RejectReason_REJECT_REASON_BUSY, fmt.Errorf("another call of this id still runs here")
	}
	if h.running >= h.options.Concurrency {
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
	held := &inHand{
		call:       newCall(ctx, h, request),
		leaseToken: request.LeaseToken,
		stop:       stop,
		ended:      make(chan struct{}),
		asked:      map[string]*asked{},
	}
	if request.RuntimeId != "" {
		run = h.runtimes.inside(request.RuntimeId, run)
	}
	h.inHand[held.key()] = held
	h.running++
	go func() {
		outcome := maybe("the tool ended its goroutine")
		defer func() {
			stop()
			h.onEnd(held, outcome)
		}()
		outcome = outcomeOf(ctx, held.call, run)
	}()
}

// safely makes an error of a panic.
func safely[T any](run func() (T, error)) (value T, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return run()
}

func (h *Host) onEnd(held *inHand, outcome *outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(held.ended)
	h.running--
	if h.inHand[held.key()] == held { // otherwise nobody waits for it any more
		h.settle(held, outcome)
	}
	h.grantCredit()
	h.noteIdle()
}

func (h *Host) settle(held *inHand, outcome *outcome) {
	if held.cancelling && outcome.failure != nil {
		delete(h.inHand, held.key())
		h.acknowledgeCancel(held.key(), pb.CancelOutcome_CANCEL_OUTCOME_STOPPED)
		return
	}
	if held.cancelling {
		h.acknowledgeCancel(held.key(), pb.CancelOutcome_CANCEL_OUTCOME_FINISHED)
	}
	held.outcome = outcome
	h.offerOutcome(held)
}

func (h *Host) offerOutcome(held *inHand) {
	if held.outcome != nil {
		h.send(held.offer(h.bound))
	}
}

// onProtocolError: a result that the server refuses it would refuse for ever. The next connection is told so in its
// place.
func (h *Host) onProtocolError(broken *pb.ProtocolError) {
	slog.Error("the server says", "message", broken.Message)
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, held := range h.inHand {
		if key.callID == broken.CallId && held.outcome != nil {
			held.outcome = refused(broken.Message)
		}
	}
}

func (h *Host) onCancel(cancel *pb.Cancel) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, known := h.inHand[keyOf(cancel)]
	switch {
	case !known:
		h.acknowledgeCancel(keyOf(cancel), pb.CancelOutcome_CANCEL_OUTCOME_UNKNOWN)
	case held.outcome != nil:
		h.acknowledgeCancel(keyOf(cancel), pb.CancelOutcome_CANCEL_OUTCOME_FINISHED)
	case !held.cancelling:
		held.cancelling = true
		held.stop()
		go h.onGraceOver(held, max(cancel.GracePeriod.AsDuration(), time.Second))
	}
}

func (h *Host) onGraceOver(held *inHand, grace time.Duration) {
	select {
	case <-held.ended:
	case <-time.After(grace):
		h.mu.Lock()
		defer h.mu.Unlock()
		h.acknowledgeCancel(held.key(), pb.CancelOutcome_CANCEL_OUTCOME_CANNOT)
	}
}

func (h *Host) acknowledgeCancel(key callKey, outcome pb.CancelOutcome) {
	h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_CancelAck{
		CancelAck: &pb.CancelAck{CallId: key.callID, Attempt: key.attempt, Outcome: outcome},
	}})
}

func (h *Host) onForget(ref callRef) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forget(ref)
	h.noteIdle()
}

func (h *Host) forget(ref callRef) {
	if held, known := h.inHand[keyOf(ref)]; known {
		delete(h.inHand, keyOf(ref))
		held.stop()
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
	c.close()
}

func (h *Host) heartbeat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	heartbeat := &pb.Heartbeat{}
	for key, held := range h.inHand {
		if held.outcome == nil {
			heartbeat.Calls = append(heartbeat.Calls, &pb.CallRef{CallId: key.callID, Attempt: key.attempt})
		}
	}
	h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_Heartbeat{Heartbeat: heartbeat}})
}

func (h *Host) grantCredit() {
	if h.connection != nil && !h.draining {
		h.connection.credit++
		h.sendCredit()
	}
}

func (h *Host) sendCredit() {
	h.send(&pb.ConnectRequest{Frame: &pb.ConnectRequest_Credit{Credit: &pb.Credit{Total: h.connection.credit}}})
}

func drainingFrame() *pb.ConnectRequest {
	return &pb.ConnectRequest{Frame: &pb.ConnectRequest_Draining{
		Draining: &pb.Draining{Reason: "the host shuts down"},
	}}
}

// callRef is any frame that is about one try of a call.
type callRef interface {
	GetCallId() string
	GetAttempt() uint32
}

func keyOf(ref callRef) callKey { return callKey{ref.GetCallId(), ref.GetAttempt()} }
