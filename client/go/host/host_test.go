package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	effectNone  = pb.AttemptEffect_ATTEMPT_EFFECT_NONE
	effectMaybe = pb.AttemptEffect_ATTEMPT_EFFECT_MAYBE
	effectDone  = pb.AttemptEffect_ATTEMPT_EFFECT_DONE
)

type nothing struct{}

func declared(name string) *pb.ToolDeclaration {
	return &pb.ToolDeclaration{Name: name, InputSchemaJson: "{}", Effect: pb.EffectClass_EFFECT_CLASS_READ_ONLY}
}

type ownError struct{ text string }

func (e *ownError) Error() string { return e.text }

type unwritable struct{}

func (unwritable) MarshalJSON() ([]byte, error) { panic("not this") }

func TestEveryErrorOfAToolIsAFailureOfItsCall(t *testing.T) {
	cases := []struct {
		name    string
		run     func() (any, error)
		message string
		effect  pb.AttemptEffect
	}{
		{"error", func() (any, error) { return nil, errors.New("no") }, "no", effectMaybe},
		{"panic", func() (any, error) { panic("no") }, "panic: no", effectMaybe},
		{"nil *ToolError", func() (any, error) { return nil, (*ToolError)(nil) }, "the tool failed", effectMaybe},
		{"nil *ownError", func() (any, error) { return nil, (*ownError)(nil) }, "panic: ", effectMaybe},
		{"MarshalJSON", func() (any, error) { return unwritable{}, nil }, "panic: ", effectMaybe},
		{"no JSON", func() (any, error) { return func() {}, nil }, "json: unsupported type", effectDone},
		{"Goexit", func() (any, error) { goruntime.Goexit(); return nil, nil }, "the tool ended", effectMaybe},
		{"no text", func() (any, error) { return nil, &ToolError{Message: "a\xff"} }, "a\uFFFD", 0},
	}
	server := startServer(t)
	var run func() (any, error)
	server.start(t, func(h *Host) {
		AddTool(h, declared("fail"), func(context.Context, *Call, nothing) (any, error) { return run() })
	})
	connection := server.welcome(t, 0)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run = c.run
			connection.sendCall(request("c1", "fail", nothing{}))
			failed := connection.failure()
			connection.acknowledge("c1")
			if !strings.HasPrefix(failed.Message, c.message) || failed.Effect != c.effect {
				t.Errorf("%v", failed)
			}
		})
	}
}

func TestAFailureIsCutToTheBoundsOfTheContract(t *testing.T) {
	long := newOutcome(nil, &ToolError{Message: strings.Repeat("ä", 50_000), Effect: effectNone}).failure
	if len(long.Message) != 64<<10 || long.Effect != effectNone {
		t.Errorf("%d bytes, %v", len(long.Message), long.Effect)
	}
	for delay, told := range map[time.Duration]time.Duration{-1: 0, time.Second: time.Second, 1 << 62: maxRetryDelay} {
		if is := newOutcome(nil, &ToolError{RetryDelay: delay}).failure.RetryDelay; is != told {
			t.Errorf("%v is told as %v", delay, is)
		}
	}
}

func echo(_ context.Context, _ *Call, in struct{ Times int }) (any, error) {
	return strings.Repeat("x", in.Times), nil
}

func times(n int) any { return map[string]int{"Times": n} }

func TestAHostWithTooManyUnacknowledgedResultsAcceptsNoCalls(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) { AddTool(h, declared("echo"), echo) })
	connection := server.welcome(t, 0)
	name := func(number int) string { return fmt.Sprintf("c%d", number) }
	for number := range maxUnacknowledged {
		connection.sendCall(request(name(number), "echo", times(1)))
		connection.result()
	}
	connection.offer(request("c", "echo", times(1)))
	if rejected := connection.rejection(); rejected.Reason != pb.RejectReason_REJECT_REASON_BUSY {
		t.Errorf("%v", rejected)
	}
	connection.acknowledge(name(0))
	// All calls that came, and room for four.
	frame := connection.next()
	for frame.GetHeartbeat() != nil {
		frame = connection.next()
	}
	if frame.GetCredit().GetTotal() != maxUnacknowledged+1+4 {
		t.Errorf("%v", frame)
	}
	connection.sendCall(request("c", "echo", times(1)))
}

func TestAHostWithTooLargeUnacknowledgedResultsHasNoRoom(t *testing.T) {
	h, output := New(Options{}), strings.Repeat("x", maxResultBytes)
	for number := range maxUnacknowledgedBytes / maxResultBytes {
		h.calls[callKey{attempt: uint32(number)}] = &trackedCall{outcome: &outcome{output: output}}
	}
	if free := h.freeSlots(); free != 4 {
		t.Errorf("%d", free)
	}
	h.calls[callKey{callID: "one more"}] = &trackedCall{outcome: maybe(strings.Repeat("x", maxFailureBytes))}
	h.calls[callKey{callID: "and one"}] = &trackedCall{outcome: &outcome{output: output}}
	if free := h.freeSlots(); free != 0 {
		t.Errorf("%d", free)
	}
}

func TestFunctionsOfTheOptionsThatPanicOrGiveNoTextDoNotEndTheConnection(t *testing.T) {
	server := startServer(t)
	calls := 0
	server.start(t, func(h *Host) {
		h.options.OnReady = func() { panic("not ready") }
		h.options.Status = func() string {
			switch calls++; calls {
			case 1:
				panic("no status")
			case 2:
				return "a\xff"
			}
			return strings.Repeat("ä", 1000)
		}
	})
	connection, _ := server.welcomeWith(t, beatingEach(20*time.Millisecond))
	for _, expected := range []string{"", "a\uFFFD", strings.Repeat("ä", 512)} {
		frame := connection.next()
		for frame.GetHeartbeat() == nil {
			frame = connection.next()
		}
		if said := frame.GetHeartbeat().StatusText; said != expected {
			t.Errorf("%q", said)
		}
	}
}

func TestAResultThatTheServerRefusesDoesNotComeAgain(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) { AddTool(h, declared("echo"), echo) })
	first := server.welcome(t, 0)
	first.sendCall(request("c1", "echo", times(1)))
	first.result()
	words := "call_result.images: " + strings.Repeat("ä", 5000)
	first.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_ProtocolError{
		ProtocolError: &pb.ProtocolError{Message: words, CallId: "c1"},
	}})
	first.over <- codes.InvalidArgument

	failed := server.welcome(t, 0).failure()
	if failed.CallId != "c1" || failed.LeaseToken != "lease-c1" || failed.Effect != effectDone {
		t.Errorf("%v", failed)
	}
	if !strings.HasPrefix(failed.Message, "the server refused the result: call_result.images: ää") {
		t.Errorf("%v", failed.Message)
	}
	if len(failed.Message) > 4200 {
		t.Errorf("the message is not cut: %d bytes", len(failed.Message))
	}
}

func TestAResultThatNoFrameCarriesBecomesAFailure(t *testing.T) {
	results := map[string]any{
		"file name":  Output{Files: []*pb.FileContent{{Name: "a\xff"}}},
		"file type":  Output{Files: []*pb.FileContent{{Name: "a", MediaType: "a\xff"}}},
		"image type": Output{Images: []*pb.Image{{MediaType: "a\xff"}}},
		"link title": Output{Links: []*pb.Link{{Title: "a\xff"}}},
		"link":       Output{Links: []*pb.Link{{Url: "a\xff"}}},
		"structured": Output{Structured: json.RawMessage("\"a\xff\"")},
	}
	server := startServer(t)
	var result any
	server.start(t, func(h *Host) {
		AddTool(h, declared("give"), func(context.Context, *Call, nothing) (any, error) { return result, nil })
	})
	connection := server.welcome(t, 0)
	for name, given := range results {
		t.Run(name, func(t *testing.T) {
			result = given
			connection.sendCall(request("c1", "give", nothing{}))
			failed := connection.failure()
			connection.acknowledge("c1")
			if !strings.HasPrefix(failed.Message, "the result cannot be sent: ") || failed.Effect != effectDone {
				t.Errorf("%v", failed)
			}
		})
	}
}

func TestWhatTheServerRefusesOfARunningCallDoesNotComeAgain(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("ask"), func(ctx context.Context, call *Call, _ nothing) (any, error) {
			_, first := call.Ask(ctx, Question{Text: "Which?", Timeout: time.Hour})
			second := call.SaveResumeState(ctx, []byte("state"))
			return fmt.Sprintf("%v; %v", first, second), nil
		})
	})
	first := server.welcome(t, 0)
	first.sendCall(request("c1", "ask", nothing{}))
	if frame := first.reply(); frame.GetNeedInput() == nil {
		t.Fatalf("%v", frame)
	}
	broken := func(words string) *pb.ConnectResponse {
		return &pb.ConnectResponse{Frame: &pb.ConnectResponse_ProtocolError{
			ProtocolError: &pb.ProtocolError{Message: words, CallId: "c1"},
		}}
	}
	first.send(broken("need_input.timeout: bad"))
	if frame := first.reply(); frame.GetProgress() == nil {
		t.Fatalf("%v", frame)
	}
	first.send(broken("more than 256 resume states"))
	result := first.result().Output
	if result != "no answer: the server refused the question: need_input.timeout: bad; "+
		"no answer: the server refused the resume state: more than 256 resume states" {
		t.Error(result)
	}
}

func TestOneAttemptSavesABoundedNumberOfStates(t *testing.T) {
	h := New(Options{})
	call := &Call{CallID: "c1", Attempt: 1, host: h, states: maxResumeStates - 1}
	h.calls[callKey{"c1", 1}] = &trackedCall{call: call}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := call.SaveResumeState(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	var refused *NoAnswerError
	if err := call.SaveResumeState(ctx, nil); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
}

func TestANameIsDeclaredOnce(t *testing.T) {
	h := New(Options{})
	declare := map[string]func(){
		"tool":           func() { AddTool(h, declared("a"), echo) },
		"hook":           func() { h.AddHook(&pb.HookDeclaration{Name: "a"}, nil) },
		"context source": func() { h.AddContextSource(&pb.ContextSourceDeclaration{Name: "a"}, nil, nil) },
		"planner":        func() { h.AddPlanner(&pb.PlannerDeclaration{Name: "a"}, nil) },
	}
	for kind, again := range declare {
		again()
		_, err := safely(func() (any, error) { again(); return nil, nil })
		if err == nil || err.Error() != fmt.Sprintf("panic: the host has a %s %q already", kind, "a") {
			t.Errorf("%v", err)
		}
	}
}

func TestDeclarationsThatNoFrameCarriesEndTheHost(t *testing.T) {
	h := New(Options{Server: "127.0.0.1:1"})
	AddTool(h, declared("a\xff"), echo)
	if err := h.Run(context.Background()); err == nil || !strings.HasPrefix(err.Error(), "the declarations of the host") {
		t.Errorf("%v", err)
	}
}

func TestADeadlineIsKeptByTheTimeLeftAndNotByTheServersClock(t *testing.T) {
	server := startServer(t)
	seen := make(chan time.Duration, 1)
	server.start(t, func(h *Host) {
		AddTool(h, declared("ask"), func(_ context.Context, call *Call, _ nothing) (any, error) {
			seen <- time.Until(call.Deadline)
			return "", nil
		})
	})
	connection := server.welcome(t, 0)
	for name, c := range map[string]struct {
		skew     time.Duration
		timeLeft *durationpb.Duration
		expected time.Duration
	}{
		"a clock behind":  {-time.Hour, durationpb.New(time.Minute), time.Minute},
		"a clock ahead":   {time.Hour, durationpb.New(time.Minute), time.Minute},
		"an older server": {time.Hour, nil, time.Hour},
	} {
		asked := request(name, "ask", nothing{})
		asked.Deadline, asked.TimeLeft = timestamppb.New(time.Now().Add(c.skew)), c.timeLeft
		connection.sendCall(asked)
		connection.result()
		if left := <-seen; left <= c.expected/2 || left > c.expected {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

func TestAToolKnowsWhoStartedTheRun(t *testing.T) {
	server := startServer(t)
	seen := make(chan string, 1)
	server.start(t, func(h *Host) {
		AddTool(h, declared("who"), func(_ context.Context, call *Call, _ nothing) (any, error) {
			seen <- call.Caller.GetName() + " of " + call.Caller.GetTenant()
			return "", nil
		})
	})
	connection := server.welcome(t, 0)
	asked := request("c1", "who", nothing{})
	asked.Caller = &pb.Caller{Name: "ada", Tenant: "acme"}
	connection.sendCall(asked)
	connection.result()
	if who := <-seen; who != "ada of acme" {
		t.Error(who)
	}
}

func TestTheMessageOfARejectionIsCut(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) { AddTool(h, declared("echo"), echo) })
	connection := server.welcome(t, 0)
	connection.offer(request("c1", "echo", map[string]int{strings.Repeat("ä", 5000): 1}))
	rejected := connection.rejection()
	if rejected.Reason != pb.RejectReason_REJECT_REASON_BAD_ARGUMENTS || len(rejected.Message) > 4096 {
		t.Errorf("%v: %d bytes", rejected.Reason, len(rejected.Message))
	}
	if !strings.HasSuffix(rejected.Message, "ä") {
		t.Errorf("%v", rejected.Message)
	}
}

func TestAServerThatFallsSilentIsLeft(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("wait"), func(ctx context.Context, _ *Call, _ nothing) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
	})
	frozen, _ := server.welcomeWith(t, beatingEach(50*time.Millisecond))
	frozen.sendCall(request("c1", "wait", nothing{}))
	frozen.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_Ping{Ping: &pb.Ping{Nonce: 7}}})
	if pong := frozen.reply().GetPong(); pong.GetNonce() != 7 {
		t.Errorf("%v", pong)
	}
	_, hello := server.welcomeWith(t, beatingEach(time.Minute))
	if len(hello.CallsInHand) != 1 || hello.CallsInHand[0].CallId != "c1" {
		t.Errorf("the call goes on: %v", hello.CallsInHand)
	}
}

func TestAHostThatStoodStillLeavesBeforeItHandlesAFrameThatWaited(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		stoodStill := time.Now()
		h.now = func() time.Time { // each look finds that the process stood still since the last one
			stoodStill = stoodStill.Add(2*time.Minute + time.Second)
			return stoodStill
		}
		AddTool(h, declared("wait"), func(ctx context.Context, _ *Call, _ nothing) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		AddTool(h, declared("echo"), echo)
	})
	stale, _ := server.welcomeWith(t, beatingEach(time.Minute))
	stale.sendCall(request("c1", "wait", nothing{}))
	stale.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_Ping{Ping: &pb.Ping{Nonce: 7}}})
	if pong := stale.reply().GetPong(); pong.GetNonce() != 7 {
		t.Errorf("%v", pong)
	}
	stale.offer(request("c2", "wait", nothing{}))
	next, hello := server.welcomeWith(t, beatingEach(time.Minute))
	if len(hello.CallsInHand) != 1 || hello.CallsInHand[0].CallId != "c1" {
		t.Errorf("c1 goes on, and c2 was not begun: %v", hello.CallsInHand)
	}
	next.sendCall(request("c3", "echo", times(1)))
	next.result()
}

func TestAHostWaitsAsLongAsTheServerAsks(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) { AddTool(h, declared("echo"), echo) })
	const wait = 4 * firstBackoff // longer than the waits that the host itself would choose
	goAway := &pb.ConnectResponse{Frame: &pb.ConnectResponse_GoAway{GoAway: &pb.GoAway{
		ReconnectAfter: durationpb.New(wait), Reason: "a restart",
	}}}
	for _, welcome := range []bool{false, true} {
		connection, _ := server.accept(t)
		if welcome {
			connection.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_Welcome{Welcome: &pb.Welcome{ProtocolVersion: 1}}})
		}
		asked := time.Now()
		connection.send(goAway)
		connection.over <- codes.Unavailable
		next, _ := server.accept(t)
		if waited := time.Since(asked); waited < wait {
			t.Errorf("with a welcome (%v) the host waits only %v", welcome, waited)
		}
		next.over <- codes.Unavailable
	}
}

func TestAServerWithoutPingsIsNotLeft(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) { AddTool(h, declared("echo"), echo) })
	quiet, _ := server.welcomeWith(t, beatingEach(20*time.Millisecond))
	for beats := 0; beats < 8; { // four times the silence after which a server that sends pings is left
		if quiet.next().GetHeartbeat() != nil {
			beats++
		}
	}
	quiet.sendCall(request("c1", "echo", times(1)))
	quiet.result()
}

func beatingEach(interval time.Duration) *pb.Welcome {
	return &pb.Welcome{ProtocolVersion: 1, HeartbeatInterval: durationpb.New(interval)}
}

func TestACallWithAnotherIdempotencyKeyIsAnotherCall(t *testing.T) {
	server := startServer(t)
	leave := make(chan string)
	server.start(t, func(h *Host) {
		AddTool(h, declared("wait"), func(context.Context, *Call, nothing) (any, error) { return <-leave, nil })
	})
	connection := server.welcome(t, 0)
	expect := func(output string) {
		t.Helper()
		if said := connection.result().Output; said != output {
			t.Errorf("%v is not %v", said, output)
		}
	}
	first, other := request("c1", "wait", nothing{}), request("c1", "wait", nothing{})
	other.IdempotencyKey = "other"
	connection.sendCall(first)
	connection.offer(other)
	if rejected := connection.rejection(); rejected.Reason != pb.RejectReason_REJECT_REASON_BUSY {
		t.Errorf("%v", rejected)
	}
	leave <- "first"
	expect("first")
	connection.offer(first)
	expect("first") // the known result
	connection.sendCall(other)
	leave <- "second"
	expect("second")
}

const bound = 65_536

func fits(t *testing.T, frame *pb.ConnectRequest) {
	t.Helper()
	if size := proto.Size(frame); size > bound {
		t.Errorf("the frame has %d bytes", size)
	}
}

func TestAResultLargerThanTheServerAcceptsBecomesAFailure(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) { AddTool(h, declared("echo"), echo) })
	connection := server.welcome(t, bound)
	const room = bound - 24
	connection.sendCall(request("c1", "echo", times(room)))
	frame := connection.reply()
	if frame.GetCallResult() == nil || proto.Size(frame) != bound {
		t.Errorf("not to the last byte: %d", proto.Size(frame))
	}
	connection.sendCall(request("c2", "echo", times(room+1)))
	failed := connection.failure()
	if failed.Message != "the result has 65537 bytes with its frame; the server takes 65536" {
		t.Errorf("%v", failed.Message)
	}
	if failed.Effect != effectDone || failed.Retryable {
		t.Errorf("%v", failed)
	}
}

func TestAnOlderResultIsCutToTheBoundOfANewServer(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) { AddTool(h, declared("echo"), echo) })
	first := server.welcome(t, 0)
	first.sendCall(request("c1", "echo", times(bound)))
	first.result()
	first.over <- codes.Unavailable
	if failed := server.welcome(t, bound).failure(); !strings.Contains(failed.Message, "the server takes 65536") {
		t.Errorf("%v", failed)
	}
}

func TestALargerFailureKeepsItsBeginning(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("fail"), func(context.Context, *Call, nothing) (any, error) {
			return nil, &ToolError{Message: strings.Repeat("ä", bound), Effect: effectNone}
		})
	})
	connection := server.welcome(t, bound)
	connection.sendCall(request("c1", "fail", nothing{}))
	frame := connection.reply()
	fits(t, frame)
	if failed := frame.GetCallFailed(); failed.GetEffect() != effectNone || len(failed.GetMessage()) < 65_000 {
		t.Errorf("%v: %d bytes", failed.GetEffect(), len(failed.GetMessage()))
	}
}

func TestOutputIsSplitAndOtherLargeFramesAreDropped(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("talk"), func(ctx context.Context, call *Call, _ nothing) (any, error) {
			_, _ = call.Write(make([]byte, bound))
			if err := call.SaveCheckpoint(make([]byte, bound)); err != nil {
				return nil, err
			}
			_, err := call.Ask(ctx, Question{Text: strings.Repeat("?", bound)})
			return nil, err
		})
		AddTool(h, declared("echo"), echo)
	})
	connection := server.welcome(t, bound)
	connection.sendCall(request("c1", "talk", nothing{}))
	for said, chunks := 0, uint64(1); said < bound; chunks++ {
		frame := connection.reply()
		fits(t, frame)
		if frame.GetOutputChunk().GetChunkSeq() != chunks {
			t.Fatalf("no chunk %d: %v", chunks, frame)
		}
		said += len(frame.GetOutputChunk().Data)
	}
	if progress := connection.reply().GetProgress(); progress == nil || progress.Checkpoint != nil {
		t.Errorf("%v", progress)
	}
	if failed := connection.failure(); !strings.Contains(failed.Message, "65536 bytes") {
		t.Errorf("%v", failed)
	}
}

func TestAResponseLargerThanTheServerAcceptsBecomesAFailure(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		notes := func(context.Context, *pb.ContextRequest, *pb.Run) ([]*pb.ContextItem, error) {
			return []*pb.ContextItem{{Text: strings.Repeat("x", bound)}}, nil
		}
		h.AddContextSource(&pb.ContextSourceDeclaration{Name: "notes"}, notes, nil)
		h.AddPlanner(&pb.PlannerDeclaration{Name: "odd"}, func(
			context.Context, *pb.PlanRequest, *pb.Run,
		) (*pb.Instruction, error) {
			return nil, (*ExtensionError)(nil)
		})
	})
	connection := server.welcome(t, bound)
	ask := func(question *pb.ExtensionRequest) string {
		connection.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_ExtensionRequest{ExtensionRequest: question}})
		return connection.reply().GetExtensionResponse().GetFailure().GetMessage()
	}
	notes := &pb.ExtensionRequest{Name: "notes", Request: &pb.ExtensionRequest_Context{Context: &pb.ContextRequest{}}}
	if said := ask(notes); !strings.Contains(said, "the server takes 65536") {
		t.Errorf("%v", said)
	}
	odd := &pb.ExtensionRequest{Name: "odd", Request: &pb.ExtensionRequest_Plan{Plan: &pb.PlanRequest{}}}
	if said := ask(odd); said != "the extension failed and does not say why" {
		t.Errorf("%v", said)
	}
}

func TestTheNextAttemptGoesOnWithTheAnswer(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("order"), func(ctx context.Context, call *Call, _ nothing) (any, error) {
			which, err := call.Ask(ctx, Question{Text: "Which?", Name: "which", ResumeState: []byte("ordered")})
			return string(call.ResumeState) + " " + which, err
		})
	})
	connection := server.welcome(t, 0)
	connection.sendCall(request("c1", "order", nothing{}))
	question := connection.reply().GetNeedInput()
	if string(question.GetResumeState()) != "ordered" || question.GetInputId() != "which" {
		t.Fatalf("%v", question)
	}
	connection.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_LeaseLost{LeaseLost: &pb.LeaseLost{
		CallId: "c1", Attempt: 1,
	}}})
	again := request("c1", "order", nothing{})
	again.Attempt, again.ResumeState = 2, []byte("ordered")
	again.Answers = []*pb.InputResponse{{
		CallId: "c1", InputId: "which", Response: &pb.InputResponse_Text{Text: "red"},
	}}
	connection.sendCall(again)
	if result := connection.result(); result.Output != "ordered red" || result.Attempt != 2 {
		t.Errorf("%v", result)
	}
}

func TestAnUnnamedQuestionHasTheSameNumberInEachAttempt(t *testing.T) {
	// As many answers are known as an attempt may ask questions: they count for the numbers alone.
	questions := []Question{}
	for number := range maxQuestions {
		questions = append(questions, Question{Text: "Your name?", Name: fmt.Sprintf("name-%d", number+1)})
	}
	questions = append(questions, Question{Text: "Next item?"}, Question{Text: "Next item?"})
	questions = append(questions, Question{Text: "Buy them?", Name: "buy", ResumeState: []byte("asked")})
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("shop"), func(ctx context.Context, call *Call, _ nothing) (any, error) {
			said := []string{}
			for _, question := range questions {
				answer, err := call.Ask(ctx, question)
				if err != nil {
					return nil, err
				}
				said = append(said, answer)
			}
			return said[maxQuestions:], nil
		})
	})
	answer := func(inputID, text string) *pb.InputResponse {
		return &pb.InputResponse{CallId: "c1", InputId: inputID, Response: &pb.InputResponse_Text{Text: text}}
	}
	connection := server.welcome(t, 0)
	again := request("c1", "shop", nothing{})
	again.Attempt = 2
	for _, question := range questions {
		if question.Name != "" {
			again.Answers = append(again.Answers, answer(question.Name, "Ada"))
		}
	}
	connection.sendCall(again)
	for at, item := range []string{"milk", "bread"} {
		inputID := connection.reply().GetNeedInput().GetInputId()
		if expected := fmt.Sprintf("question-%d", maxQuestions+at+1); inputID != expected {
			t.Fatalf("%q is not %q", inputID, expected)
		}
		connection.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_InputResponse{
			InputResponse: answer(inputID, item),
		}})
	}
	if result := connection.result(); result.Output != `["milk","bread","Ada"]` {
		t.Errorf("%v", result)
	}
}

func TestAStateIsRepeatedUntilItIsAcknowledged(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("save"), func(ctx context.Context, call *Call, _ nothing) (any, error) {
			for _, state := range []string{"one", "two"} {
				if err := call.SaveResumeState(ctx, []byte(state)); err != nil {
					return nil, err
				}
			}
			return Output{Structured: []int{1}, Links: []*pb.Link{{Url: "https://a.example"}}}, nil
		})
	})
	ack := func(no uint64) *pb.ConnectResponse {
		return &pb.ConnectResponse{Frame: &pb.ConnectResponse_ProgressAck{ProgressAck: &pb.ProgressAck{
			CallId: "c1", Attempt: 1, ResumeNo: no,
		}}}
	}
	first := server.welcome(t, 0)
	first.sendCall(request("c1", "save", nothing{}))
	if one := first.reply().GetProgress(); string(one.GetResumeState()) != "one" || one.GetResumeNo() != 1 {
		t.Fatalf("%v", one)
	}
	first.over <- codes.Unavailable
	second := server.welcome(t, 0)
	if one := second.reply().GetProgress(); string(one.GetResumeState()) != "one" {
		t.Fatalf("%v", one)
	}
	second.send(ack(1))
	if two := second.reply().GetProgress(); string(two.GetResumeState()) != "two" || two.GetResumeNo() != 2 {
		t.Fatalf("%v", two)
	}
	second.send(ack(2))
	result := second.result()
	if result.Output != "" || result.StructuredJson != "[1]" || len(result.Links) != 1 {
		t.Errorf("%v", result)
	}
}

func TestTheLastCheckpointIsRepeatedAfterAReconnect(t *testing.T) {
	server := startServer(t)
	leave, saved := make(chan struct{}), make(chan error)
	server.start(t, func(h *Host) {
		AddTool(h, declared("save"), func(_ context.Context, call *Call, _ nothing) (any, error) {
			for _, checkpoint := range []string{"one", "two"} {
				<-leave
				saved <- call.SaveCheckpoint([]byte(checkpoint))
			}
			<-leave
			return "done", nil
		})
	})
	expect := func(c *fakeConnection, checkpoint string) {
		t.Helper()
		if progress := c.reply().GetProgress(); string(progress.GetCheckpoint()) != checkpoint {
			t.Fatalf("%v", progress)
		}
	}
	save := func() {
		t.Helper()
		leave <- struct{}{}
		if err := <-saved; err != nil {
			t.Fatal(err)
		}
	}
	first := server.welcome(t, 0)
	first.sendCall(request("c1", "save", nothing{}))
	save()
	expect(first, "one")
	first.over <- codes.Unavailable
	second, _ := server.accept(t)
	save() // not welcome yet: nothing can be sent
	second.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_Welcome{Welcome: &pb.Welcome{ProtocolVersion: 1}}})
	expect(second, "two")
	leave <- struct{}{}
	second.result()
	second.over <- codes.Unavailable
	server.welcome(t, 0).result() // a call that has ended has no checkpoint
}

func TestAStateLargerThanTheServerAcceptsIsRefused(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("save"), func(ctx context.Context, call *Call, _ nothing) (any, error) {
			call.ProgressMessage("about to save")
			return nil, call.SaveResumeState(ctx, make([]byte, 2_000))
		})
	})
	connection := server.welcome(t, 1_000)
	connection.sendCall(request("c1", "save", nothing{}))
	if progress := connection.reply().GetProgress(); progress.GetMessage() != "about to save" || progress.Fraction != nil {
		t.Errorf("%v", progress)
	}
	if failed := connection.failure(); !strings.HasSuffix(failed.Message, "the resume state is larger than the server takes") {
		t.Errorf("%v", failed)
	}
}

func TestTheContextOfAnExtensionIsDoneAtItsDeadline(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		h.AddHook(&pb.HookDeclaration{Name: "guard"}, func(
			ctx context.Context, _ *pb.HookRequest, _ *pb.Run,
		) (*pb.HookVerdict, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
	})
	connection := server.welcome(t, 0)
	connection.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_ExtensionRequest{ExtensionRequest: &pb.ExtensionRequest{
		Name: "guard", Request: &pb.ExtensionRequest_Hook{Hook: &pb.HookRequest{}}, TimeLeft: durationpb.New(1),
	}}})
	answer := connection.reply().GetExtensionResponse()
	if answer.GetFailure().GetMessage() != context.DeadlineExceeded.Error() {
		t.Errorf("%v", answer)
	}
}

func TestStatesThatAreSavedAtTheSameTimeAreAcknowledgedTogether(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("save"), func(ctx context.Context, call *Call, _ nothing) (any, error) {
			errs := make(chan error, 2)
			for _, state := range []string{"one", "two"} {
				go func() { errs <- call.SaveResumeState(ctx, []byte(state)) }()
			}
			return "saved", errors.Join(<-errs, <-errs)
		})
	})
	first := server.welcome(t, 0)
	first.sendCall(request("c1", "save", nothing{}))
	for no := range uint64(2) {
		if saved := first.reply().GetProgress(); saved.GetResumeNo() != no+1 {
			t.Fatalf("%v", saved)
		}
	}
	first.over <- codes.Unavailable
	second := server.welcome(t, 0)
	if two := second.reply().GetProgress(); two.GetResumeNo() != 2 {
		t.Fatalf("%v", two)
	}
	second.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_ProgressAck{ProgressAck: &pb.ProgressAck{
		CallId: "c1", Attempt: 1, ResumeNo: 2,
	}}})
	if result := second.result(); result.Output != "saved" {
		t.Errorf("%v", result)
	}
}

func TestEveryKindOfQuestionHasMetadata(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("kinds"), func(ctx context.Context, call *Call, _ nothing) (any, error) {
			question := func(kind string) Question {
				return Question{Text: kind + "?", MetadataJSON: `{"kind":"` + kind + `"}`}
			}
			_, text := call.Ask(ctx, question("text"))
			_, one := call.Choose(ctx, question("one"), Option{ID: "a"})
			_, several := call.ChooseSeveral(ctx, question("several"), Option{ID: "a"})
			_, form := call.FillIn(ctx, question("form"), "{}")
			_, visit := call.Visit(ctx, question("visit"), "https://pay.example")
			return "asked", errors.Join(text, one, several, form, visit)
		})
	})
	connection := server.welcome(t, 0)
	connection.sendCall(request("c1", "kinds", nothing{}))
	selection := &pb.InputResponse_Selection{Selection: &pb.InputSelection{OptionIds: []string{"a"}}}
	for _, expected := range []struct {
		kind     string
		response *pb.InputResponse
	}{
		{"text", &pb.InputResponse{Response: &pb.InputResponse_Text{Text: "yes"}}},
		{"one", &pb.InputResponse{Response: selection}},
		{"several", &pb.InputResponse{Response: selection}},
		{"form", &pb.InputResponse{Response: &pb.InputResponse_FormJson{FormJson: "{}"}}},
		{"visit", &pb.InputResponse{Response: &pb.InputResponse_Url{Url: pb.UrlOutcome_URL_OUTCOME_DONE}}},
	} {
		question := connection.reply().GetNeedInput()
		if question.GetMetadataJson() != `{"kind":"`+expected.kind+`"}` {
			t.Fatalf("%v", question)
		}
		expected.response.CallId, expected.response.InputId = "c1", question.GetInputId()
		connection.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_InputResponse{InputResponse: expected.response}})
	}
	if result := connection.result(); result.Output != "asked" {
		t.Errorf("%v", result)
	}
}

func TestFormsVisitsAndEmptyTextsAreAskedFor(t *testing.T) {
	server := startServer(t)
	server.start(t, func(h *Host) {
		AddTool(h, declared("fill"), func(ctx context.Context, call *Call, _ nothing) (any, error) {
			form, err := call.FillIn(ctx, Question{Text: "Who?"}, `{"type":"object"}`)
			if err != nil {
				return nil, err
			}
			paid, err := call.Visit(ctx, Question{Text: "Pay"}, "https://pay.example")
			if err != nil {
				return nil, err
			}
			more, err := call.Ask(ctx, Question{Text: "More?", AllowEmpty: true})
			return []any{form, paid, more}, err
		})
	})
	connection := server.welcome(t, 0)
	connection.sendCall(request("c1", "fill", nothing{}))
	for _, response := range []*pb.InputResponse{
		{Response: &pb.InputResponse_FormJson{FormJson: "{}"}},
		{Response: &pb.InputResponse_Url{Url: pb.UrlOutcome_URL_OUTCOME_DONE}},
		{Response: &pb.InputResponse_Text{}},
	} {
		question := connection.reply().GetNeedInput()
		response.CallId, response.InputId = "c1", question.GetInputId()
		connection.send(&pb.ConnectResponse{Frame: &pb.ConnectResponse_InputResponse{InputResponse: response}})
	}
	if result := connection.result(); result.Output != `["{}",true,""]` {
		t.Errorf("%v", result)
	}
}
