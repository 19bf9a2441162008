package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Bounds of the contract.
const (
	maxQuestions        = 16
	maxNameBytes        = 128
	maxResumeStateBytes = 64 << 10
	maxResumeStates     = 256       // of one attempt
	maxQuestionBytes    = 128 << 10 // above the server's own bound; a larger question is not sent
)

// Question is a question of a running call for a human. Only Text is required.
type Question struct {
	Text string
	// Name is unique within the call. A later attempt that asks the same question under the same name gets the earlier
	// answer. By default, questions are numbered in the order in which they are asked.
	Name string
	// Timeout bounds the wait for an answer. The default is the run's approval_timeout_seconds.
	Timeout time.Duration
	// AllowEmpty takes an empty text as an answer.
	AllowEmpty bool
	// ResumeState, if it is not nil, gives the call up until the answer, which may take a week: the server records the
	// question with this state, and stops this attempt. The answer comes with the next attempt, on any host; there the
	// question of the same name has it at once, so Name is required. The state is a promise: going on from it with the
	// answer repeats nothing that was done until now. At most 64 KiB.
	ResumeState []byte
	// MetadataJSON is a JSON object of at most 16 KiB for user interfaces.
	MetadataJSON string
}

// Option is one choice: an ID for the answer, and a label for people.
type Option struct{ ID, Label string }

// NoAnswerError means that there will be no answer: a human declined, nobody answered in time, or the question is
// invalid.
type NoAnswerError struct{ Reason string }

func (e *NoAnswerError) Error() string { return "no answer: " + e.Reason }

// Ask asks a human for text, and waits for the answer, through reconnects and restarts of the server. The call's
// deadline stands still meanwhile, and starts anew with the answer. A call may ask 16 questions. The error is a
// *NoAnswerError, or the error of ctx, or context.Canceled if the call must stop.
func (c *Call) Ask(ctx context.Context, question Question) (string, error) {
	response, err := c.ask(ctx, question, &pb.NeedInput{})
	if err != nil {
		return "", err
	}
	if text, fits := response.Response.(*pb.InputResponse_Text); fits {
		return text.Text, nil
	}
	return "", errWrongAnswer
}

// Choose asks a human to choose one of at most 64 options, and returns its ID. Otherwise as Ask.
func (c *Call) Choose(ctx context.Context, question Question, options ...Option) (string, error) {
	chosen, err := c.choose(ctx, question, options, false)
	if err == nil && len(chosen) == 0 {
		err = errWrongAnswer
	}
	if err != nil {
		return "", err
	}
	return chosen[0], nil
}

// ChooseSeveral asks a human to choose several options, or none, and returns their IDs. Otherwise as Ask.
func (c *Call) ChooseSeveral(ctx context.Context, question Question, options ...Option) ([]string, error) {
	return c.choose(ctx, question, options, true)
}

// FillIn asks a human to fill in a form, and returns a JSON object with its fields, which the server has checked. The
// schema is a JSON schema of an object with flat fields: strings, numbers, integers, booleans, or one of several
// strings. Otherwise as Ask.
func (c *Call) FillIn(ctx context.Context, question Question, schemaJSON string) (string, error) {
	response, err := c.ask(ctx, question, &pb.NeedInput{FormSchemaJson: valid(schemaJSON)})
	if err != nil {
		return "", err
	}
	if form, fits := response.Response.(*pb.InputResponse_FormJson); fits {
		return form.FormJson, nil
	}
	return "", errWrongAnswer
}

// Visit asks a human to visit a link, and returns true if the human did there what was asked. Otherwise as Ask.
func (c *Call) Visit(ctx context.Context, question Question, url string) (bool, error) {
	response, err := c.ask(ctx, question, &pb.NeedInput{Url: valid(url)})
	if err != nil {
		return false, err
	}
	if visited, fits := response.Response.(*pb.InputResponse_Url); fits {
		return visited.Url == pb.UrlOutcome_URL_OUTCOME_DONE, nil
	}
	return false, errWrongAnswer
}

var errWrongAnswer = &NoAnswerError{"the answer does not fit the question"}

func (c *Call) choose(ctx context.Context, question Question, options []Option, multiple bool) ([]string, error) {
	if len(options) == 0 {
		return nil, &NoAnswerError{"there is nothing to choose from"}
	}
	frame := &pb.NeedInput{Multiple: multiple}
	for _, option := range options {
		frame.Options = append(frame.Options, &pb.SelectOption{Id: valid(option.ID), Label: valid(option.Label)})
	}
	response, err := c.ask(ctx, question, frame)
	if err != nil {
		return nil, err
	}
	if response.GetSelection() == nil {
		return nil, errWrongAnswer
	}
	return response.GetSelection().OptionIds, nil
}

func (c *Call) ask(ctx context.Context, question Question, frame *pb.NeedInput) (*pb.InputResponse, error) {
	number := c.questions.Add(1)
	if question.Name != "" {
		if earlier := c.earlierAnswer(question.Name); earlier != nil {
			return answered(earlier)
		}
	}
	asked := c.asked.Add(1)
	frame.CallId, frame.Attempt = c.CallID, c.Attempt
	frame.InputId, frame.Question = valid(question.Name), valid(question.Text)
	frame.AllowEmpty, frame.ResumeState = question.AllowEmpty, question.ResumeState
	frame.MetadataJson = valid(question.MetadataJSON)
	if frame.InputId == "" {
		frame.InputId = fmt.Sprintf("question-%d", number)
	}
	if question.Timeout != 0 {
		frame.Timeout = durationpb.New(question.Timeout)
	}
	switch {
	case asked > maxQuestions:
		return nil, &NoAnswerError{fmt.Sprintf("a call may ask %d questions at most", maxQuestions)}
	case len(frame.InputId) > maxNameBytes:
		return nil, &NoAnswerError{fmt.Sprintf("the name of a question has at most %d bytes", maxNameBytes)}
	case question.ResumeState != nil && question.Name == "":
		return nil, &NoAnswerError{"a question with a resume state needs a name"}
	case len(question.ResumeState) > maxResumeStateBytes:
		return nil, &NoAnswerError{fmt.Sprintf("a resume state has at most %d bytes", maxResumeStateBytes)}
	case question.Timeout < 0:
		return nil, &NoAnswerError{"a timeout is not negative"}
	case proto.Size(frame) > maxQuestionBytes:
		return nil, &NoAnswerError{fmt.Sprintf("the question has more than %d bytes", maxQuestionBytes)}
	}
	response, err := c.host.ask(ctx, c, frame)
	if err != nil {
		return nil, err
	}
	return answered(response)
}

func answered(response *pb.InputResponse) (*pb.InputResponse, error) {
	if refused, is := response.GetResponse().(*pb.InputResponse_Refused); is {
		return nil, &NoAnswerError{refused.Refused}
	}
	return response, nil
}

// earlierAnswer is nil if no earlier attempt gave its host up with a question of this name.
func (c *Call) earlierAnswer(name string) *pb.InputResponse {
	for at := len(c.Answers) - 1; at >= 0; at-- {
		if c.Answers[at].InputId == name {
			return c.Answers[at]
		}
	}
	return nil
}

// SaveResumeState records a state of at most 64 KiB that the call goes on from, and waits until the server has it. Until
// then the call must do nothing that takes effect. The state is a promise: going on from it repeats nothing that was done,
// whatever the call does after it. The next attempt has it as ResumeState, and an UNSAFE call whose host is lost goes on
// instead of being in doubt. One attempt saves 256 states at most. The errors are those of Ask.
func (c *Call) SaveResumeState(ctx context.Context, state []byte) error {
	if len(state) > maxResumeStateBytes {
		return &NoAnswerError{fmt.Sprintf("a resume state has at most %d bytes", maxResumeStateBytes)}
	}
	progress := &pb.Progress{CallId: c.CallID, Attempt: c.Attempt, ResumeState: append([]byte{}, state...)}
	recorded, err := c.host.saveState(c, progress)
	if err != nil {
		return err
	}
	select {
	case err := <-recorded:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stopped:
		return context.Canceled
	}
}

// unrecordedState is a state that the server has not confirmed.
type unrecordedState struct {
	progress *pb.Progress
	recorded chan error // has room for one: nil once it or a later one is recorded, or why it is not sent
}

// saveState numbers a state and sends it.
func (h *Host) saveState(call *Call, progress *pb.Progress) (<-chan error, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tracked, known := h.calls[keyOf(progress)]
	if !known || tracked.call != call || tracked.outcome != nil || tracked.cancelling {
		return nil, context.Canceled
	}
	if call.states == maxResumeStates {
		return nil, &NoAnswerError{fmt.Sprintf("one attempt of a call saves %d resume states at most", maxResumeStates)}
	}
	call.states++
	progress.ResumeNo = call.states
	recorded := make(chan error, 1)
	tracked.unrecorded = append(tracked.unrecorded, unrecordedState{progress, recorded})
	h.sendLastState(tracked)
	return recorded, nil
}

// sendLastState sends the last state of a call, if it is not recorded. One larger than the server's bound is refused. It
// must be called with the lock held.
func (h *Host) sendLastState(tracked *trackedCall) {
	for count := len(tracked.unrecorded); count > 0; count-- {
		last := tracked.unrecorded[count-1]
		frame := &pb.ConnectRequest{Frame: &pb.ConnectRequest_Progress{Progress: last.progress}}
		if h.bound.fits(frame) {
			h.send(frame)
			return
		}
		tracked.unrecorded = tracked.unrecorded[:count-1]
		last.recorded <- &NoAnswerError{"the resume state is larger than the server takes"}
	}
}

func (h *Host) onProgressAck(ack *pb.ProgressAck) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tracked, known := h.calls[keyOf(ack)]
	for known && len(tracked.unrecorded) > 0 && tracked.unrecorded[0].progress.ResumeNo <= ack.ResumeNo {
		tracked.unrecorded[0].recorded <- nil
		tracked.unrecorded = tracked.unrecorded[1:]
	}
}

// openQuestion is a question that waits for its answer.
type openQuestion struct {
	question *pb.NeedInput
	answer   chan *pb.InputResponse // has room for one
}

// ask sends a question, and repeats it after each reconnect, until there is an answer or the call stops.
func (h *Host) ask(ctx context.Context, call *Call, question *pb.NeedInput) (*pb.InputResponse, error) {
	waiting, err := h.addQuestion(call, question)
	if err != nil {
		return nil, err
	}
	defer h.dropQuestion(call, question)
	select {
	case response := <-waiting.answer:
		return response, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-call.stopped:
		return nil, context.Canceled
	}
}

func (h *Host) addQuestion(call *Call, question *pb.NeedInput) (*openQuestion, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	tracked, known := h.calls[keyOf(question)]
	if !known || tracked.call != call || tracked.outcome != nil || tracked.cancelling {
		return nil, context.Canceled
	}
	if slices.ContainsFunc(tracked.questions, named(question.InputId)) {
		return nil, &NoAnswerError{fmt.Sprintf("the call asks %q already", question.InputId)}
	}
	waiting := &openQuestion{question, make(chan *pb.InputResponse, 1)}
	tracked.questions = append(tracked.questions, waiting)
	h.sendQuestion(waiting)
	return waiting, nil
}

func (h *Host) dropQuestion(call *Call, question *pb.NeedInput) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tracked, known := h.calls[keyOf(question)]; known && tracked.call == call {
		tracked.questions = slices.DeleteFunc(tracked.questions, named(question.InputId))
	}
}

// named finds the question of this id.
func named(id string) func(*openQuestion) bool {
	return func(waiting *openQuestion) bool { return waiting.question.InputId == id }
}

// refuse answers a question in the server's place.
func (waiting *openQuestion) refuse(why string) {
	waiting.answer <- &pb.InputResponse{Response: &pb.InputResponse_Refused{Refused: why}}
}

// refuseNewest refuses the newest question of a call or, without one, its states that are not recorded: the older ones got
// past the server. It must be called with the host's lock held.
func (tracked *trackedCall) refuseNewest(why string) {
	if last := len(tracked.questions) - 1; last >= 0 {
		tracked.questions[last].refuse("the server refused the question: " + why)
		tracked.questions = tracked.questions[:last]
		return
	}
	for _, state := range tracked.unrecorded {
		state.recorded <- &NoAnswerError{"the server refused the resume state: " + why}
	}
	tracked.unrecorded = nil
}

// sendQuestion must be called with the lock held. A question larger than the server's bound is refused.
func (h *Host) sendQuestion(waiting *openQuestion) {
	frame := &pb.ConnectRequest{Frame: &pb.ConnectRequest_NeedInput{NeedInput: waiting.question}}
	if h.bound.fits(frame) {
		h.send(frame)
		return
	}
	tracked := h.calls[keyOf(waiting.question)]
	tracked.questions = slices.DeleteFunc(tracked.questions, named(waiting.question.InputId))
	waiting.refuse(fmt.Sprintf("the question has more than the %d bytes that the server takes", h.bound.bytes()))
}

func (h *Host) onInputResponse(response *pb.InputResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, tracked := range h.calls {
		if at := slices.IndexFunc(tracked.questions, named(response.InputId)); key.callID == response.CallId && at >= 0 {
			tracked.questions[at].answer <- response
			tracked.questions = slices.Delete(tracked.questions, at, at+1)
		}
	}
}

// valid replaces invalid UTF-8, which no frame can carry.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
