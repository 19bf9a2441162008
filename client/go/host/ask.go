package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// What the contract allows.
const (
	maxQuestions     = 16
	maxNameBytes     = 128
	maxQuestionBytes = 128 << 10 // beyond what the server takes; one that no frame could carry is not sent
)

// Question is what a call asks a human. Only Text is required.
type Question struct {
	Text string
	// Name is unique within the call. A later try of the call that asks the same under the same name is given the
	// answer of the earlier one. By default, questions are numbered in the order in which they are asked.
	Name string
	// Timeout is when the question is given up; by default, the run's approval_timeout_seconds says.
	Timeout time.Duration
}

// Option is one choice: what the answer names, and what people read.
type Option struct{ ID, Label string }

// NoAnswerError tells that there is no answer and will not be: nobody answered in time, or it is no question that can
// be asked.
type NoAnswerError struct{ Reason string }

func (e *NoAnswerError) Error() string { return "no answer: " + e.Reason }

// Ask asks a human for text, and waits for as long as that takes, through reconnects and restarts of the server. The
// call's deadline does not run meanwhile; after the answer the call has all of its time again. A call may ask 16
// questions. The error is a *NoAnswerError, or tells that ctx is done or the call is to stop.
func (c *Call) Ask(ctx context.Context, question Question) (string, error) {
	response, err := c.ask(ctx, question, &pb.NeedInput{})
	if err != nil {
		return "", err
	}
	if text, fits := response.Response.(*pb.InputResponse_Text); fits {
		return text.Text, nil
	}
	return "", errMisunderstood
}

// Choose asks a human to choose one of at most 64 options, and returns its ID; else as Ask.
func (c *Call) Choose(ctx context.Context, question Question, options ...Option) (string, error) {
	chosen, err := c.choose(ctx, question, options, false)
	if err == nil && len(chosen) == 0 {
		err = errMisunderstood
	}
	if err != nil {
		return "", err
	}
	return chosen[0], nil
}

// ChooseSeveral asks a human to choose several options, or none, and returns their IDs; else as Ask.
func (c *Call) ChooseSeveral(ctx context.Context, question Question, options ...Option) ([]string, error) {
	return c.choose(ctx, question, options, true)
}

var errMisunderstood = &NoAnswerError{"the answer does not fit the question"}

func (c *Call) choose(ctx context.Context, question Question, options []Option, multiple bool) ([]string, error) {
	if len(options) == 0 {
		return nil, &NoAnswerError{"there is nothing to choose from"}
	}
	asked := &pb.NeedInput{Multiple: multiple}
	for _, option := range options {
		asked.Options = append(asked.Options, &pb.SelectOption{Id: valid(option.ID), Label: valid(option.Label)})
	}
	response, err := c.ask(ctx, question, asked)
	if err != nil {
		return nil, err
	}
	if response.GetSelection() == nil {
		return nil, errMisunderstood
	}
	return response.GetSelection().OptionIds, nil
}

func (c *Call) ask(ctx context.Context, question Question, asked *pb.NeedInput) (*pb.InputResponse, error) {
	number := c.questions.Add(1)
	asked.CallId, asked.Attempt = c.CallID, c.Attempt
	asked.InputId, asked.Question = valid(question.Name), valid(question.Text)
	if asked.InputId == "" {
		asked.InputId = fmt.Sprintf("question-%d", number)
	}
	if question.Timeout != 0 {
		asked.Timeout = durationpb.New(question.Timeout)
	}
	switch {
	case number > maxQuestions:
		return nil, &NoAnswerError{fmt.Sprintf("a call may ask %d questions at most", maxQuestions)}
	case len(asked.InputId) > maxNameBytes:
		return nil, &NoAnswerError{fmt.Sprintf("the name of a question has at most %d bytes", maxNameBytes)}
	case question.Timeout < 0:
		return nil, &NoAnswerError{"a timeout is not negative"}
	case proto.Size(asked) > maxQuestionBytes:
		return nil, &NoAnswerError{fmt.Sprintf("the question has more than %d bytes", maxQuestionBytes)}
	}
	response, err := c.host.ask(ctx, c, asked)
	if refused, is := response.GetResponse().(*pb.InputResponse_Refused); is {
		return nil, &NoAnswerError{refused.Refused}
	}
	return response, err
}

// asked is a question that waits for its answer.
type asked struct {
	question *pb.NeedInput
	answer   chan *pb.InputResponse // takes one without a reader
}

// ask asks now and after each reconnect, until there is an answer or nobody waits for it.
func (h *Host) ask(ctx context.Context, call *Call, question *pb.NeedInput) (*pb.InputResponse, error) {
	waits, err := h.putQuestion(call, question)
	if err != nil {
		return nil, err
	}
	defer h.dropQuestion(call, question)
	select {
	case response := <-waits.answer:
		return response, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-call.stopped:
		return nil, context.Canceled
	}
}

func (h *Host) putQuestion(call *Call, question *pb.NeedInput) (*asked, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, known := h.inHand[keyOf(question)]
	if !known || held.call != call || held.outcome != nil || held.cancelling {
		return nil, context.Canceled
	}
	if held.asked[question.InputId] != nil {
		return nil, &NoAnswerError{fmt.Sprintf("the call asks %q already", question.InputId)}
	}
	waits := &asked{question, make(chan *pb.InputResponse, 1)}
	held.asked[question.InputId] = waits
	h.sendQuestion(waits)
	return waits, nil
}

func (h *Host) dropQuestion(call *Call, question *pb.NeedInput) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held, known := h.inHand[keyOf(question)]; known && held.call == call {
		delete(held.asked, question.InputId)
	}
}

// sendQuestion is called with the lock held. A question that no frame can carry is refused.
func (h *Host) sendQuestion(waits *asked) {
	frame := &pb.ConnectRequest{Frame: &pb.ConnectRequest_NeedInput{NeedInput: waits.question}}
	if h.bound.takes(frame) {
		h.send(frame)
		return
	}
	delete(h.inHand[keyOf(waits.question)].asked, waits.question.InputId)
	why := fmt.Sprintf("the question has more than the %d bytes that the server takes", h.bound.bytes())
	waits.answer <- &pb.InputResponse{Response: &pb.InputResponse_Refused{Refused: why}}
}

func (h *Host) onInputResponse(response *pb.InputResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, held := range h.inHand {
		if waits := held.asked[response.InputId]; key.callID == response.CallId && waits != nil {
			delete(held.asked, response.InputId)
			waits.answer <- response
		}
	}
}

// valid is what a frame can carry of a text.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
