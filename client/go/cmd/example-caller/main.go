// An example caller: it starts a run, shows its events, approves its tool calls, and reopens a lost stream.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	pb "agentloop/client/go/agentloop/v1"
	"agentloop/client/go/cmd/internal/example"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const maxAttempts = 20 // in a row without a new event

var retryable = []codes.Code{codes.Unavailable, codes.ResourceExhausted, codes.Aborted, codes.Internal}

func main() {
	server := flag.String("server", cmp.Or(os.Getenv("AGENTLOOP_SERVER"), "127.0.0.1:50051"), "address of the server")
	runID := flag.String("run-id", rand.Text(), "id of the run; the id of an existing run follows that run")
	sessionID := flag.String("session-id", "", "session to go on with")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: example-caller [options] PROMPT...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}

	input := &pb.RunInput{RunId: runID, Prompt: strings.Join(flag.Args(), " ")}
	if *sessionID != "" {
		input.SessionId = sessionID
	}
	finished, answer, err := prompt(*server, input)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Println("status:", strings.ToLower(strings.TrimPrefix(finished.Status.String(), "RUN_STATUS_")))
	if failure := finished.Error; failure != nil {
		fmt.Println("error:", strings.TrimPrefix(failure.Code.String(), "RUN_ERROR_CODE_"), failure.Message)
	}
	if finished.FinalEntryNo > 0 {
		fmt.Println("answer:", textOf(answer))
	}
	if finished.Status != pb.RunStatus_RUN_STATUS_COMPLETED {
		os.Exit(1)
	}
}

// prompt runs a prompt, and returns the end of the run and its last message.
func prompt(server string, input *pb.RunInput) (*pb.RunFinished, *pb.Message, error) {
	address, options, err := example.Credentials(server)
	if err != nil {
		return nil, nil, err
	}
	channel, err := grpc.NewClient(address, append(options,
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
		}}),
	)...)
	if err != nil {
		return nil, nil, err
	}
	defer channel.Close()
	caller := &caller{client: pb.NewAgentLoopClient(channel), input: input}
	finished, err := caller.follow(context.Background())
	return finished, caller.lastMessage, err
}

// caller follows one run from its prompt to its end.
type caller struct {
	client      pb.AgentLoopClient
	input       *pb.RunInput
	lastSeq     uint64
	lastMessage *pb.Message
	screen      screen
}

// follow follows the run to its end. It fails on a lasting error, or after too many attempts.
func (c *caller) follow(ctx context.Context) (*pb.RunFinished, error) {
	failures := 0
	for {
		seen := c.lastSeq
		finished, err := c.followOnce(ctx)
		if finished != nil {
			return finished, nil
		}
		if failures++; c.lastSeq != seen {
			failures = 1
		}
		code := status.Code(err)
		if failures == maxAttempts || !slices.Contains(retryable, code) {
			return nil, err
		}
		c.screen.line("stream lost (%s), reopening it after event %d", code, c.lastSeq)
		time.Sleep(min(100*time.Millisecond<<failures, 2*time.Second))
	}
}

func (c *caller) followOnce(ctx context.Context) (*pb.RunFinished, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next, err := c.stream(ctx)
	if err != nil {
		return nil, err
	}
	for {
		event, err := next()
		if errors.Is(err, io.EOF) {
			return nil, status.Error(codes.Unavailable, "the stream ended before the run")
		}
		if err != nil {
			return nil, err
		}
		if err := c.onEvent(ctx, event); err != nil {
			return nil, err
		}
		if finished := event.GetRunFinished(); finished != nil {
			return finished, nil
		}
	}
}

// stream starts the run, or subscribes after the last event. The run id makes a second start harmless.
func (c *caller) stream(ctx context.Context) (func() (*pb.RunEvent, error), error) {
	if c.lastSeq == 0 {
		stream, err := c.client.RunStream(ctx, &pb.RunStreamRequest{Input: c.input})
		return func() (*pb.RunEvent, error) {
			response, err := stream.Recv()
			return response.GetEvent(), err
		}, err
	}
	stream, err := c.client.Subscribe(ctx, &pb.SubscribeRequest{RunId: c.input.GetRunId(), AfterSeq: c.lastSeq})
	return func() (*pb.RunEvent, error) {
		response, err := stream.Recv()
		return response.GetEvent(), err
	}, err
}

func (c *caller) onEvent(ctx context.Context, event *pb.RunEvent) error {
	if event.Seq > 0 {
		c.screen.line("[%d] %s", event.Seq, kindOf(event))
	}
	switch kind := event.Event.(type) {
	case *pb.RunEvent_ModelDelta:
		c.screen.delta(kind.ModelDelta)
	case *pb.RunEvent_PartialMessage:
		c.screen.skipTo(kind.PartialMessage, kind.PartialMessage.DeltaSeq)
		c.screen.message(kind.PartialMessage)
	case *pb.RunEvent_AssistantMessage:
		c.screen.message(kind.AssistantMessage)
		c.lastMessage = kind.AssistantMessage.Message
	case *pb.RunEvent_HumanRequested:
		if err := c.answer(ctx, kind.HumanRequested.Request); err != nil {
			return err // the event comes again after a reconnect
		}
	}
	c.lastSeq = max(c.lastSeq, event.Seq)
	return nil
}

func (c *caller) answer(ctx context.Context, request *pb.HumanRequest) error {
	c.screen.line("%s %s: %s", request.Tool, request.ArgumentsJson, request.Question)
	if request.Kind != pb.HumanRequestKind_HUMAN_REQUEST_KIND_APPROVE {
		return nil // left to a human
	}
	_, err := c.client.SubmitApproval(ctx, &pb.SubmitApprovalRequest{
		RequestId: request.RequestId,
		Decision:  &pb.Decision{Decision: &pb.Decision_Approve{Approve: &pb.Approve{}}},
		Digest:    request.Digest,
		DecidedBy: "example caller",
	})
	if status.Code(err) == codes.FailedPrecondition {
		c.screen.line("not approved: %s", status.Convert(err).Message()) // somebody else answered first
		return nil
	}
	if err == nil {
		c.screen.line("approved")
	}
	return err
}

func kindOf(event *pb.RunEvent) string {
	message := event.ProtoReflect()
	if field := message.WhichOneof(message.Descriptor().Oneofs().ByName("event")); field != nil {
		return string(field.Name())
	}
	return "unknown"
}

func textOf(message *pb.Message) string {
	var text strings.Builder
	for _, part := range message.GetParts() {
		text.WriteString(part.GetText())
	}
	return text.String()
}
