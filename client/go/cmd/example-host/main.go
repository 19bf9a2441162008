// An example tool host: six tools, from a harmless one to one that must not run twice.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	pb "agentloop/client/go/agentloop/v1"
	"agentloop/client/go/host"
)

func main() {
	server := flag.String("server", cmp.Or(os.Getenv("AGENTLOOP_SERVER"), "127.0.0.1:50051"), "address of the server")
	hostID := flag.String("host-id", os.Getenv("AGENTLOOP_HOST_ID"), "name of this process")
	journalPath := flag.String("journal", os.Getenv("AGENTLOOP_JOURNAL"), "file that gets a line for each effect")
	flag.Parse()

	var h *host.Host
	h = host.New(host.Options{
		Server:  strings.TrimPrefix(*server, "http://"),
		HostID:  *hostID,
		OnReady: func() { fmt.Println("ready", h.ID()) },
	})
	declareTools(h, &journal{path: *journalPath})
	if err := h.Run(untilSignalled()); err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}

// untilSignalled is done at the first SIGTERM or SIGINT; the second ends the process at once.
func untilSignalled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(1)
	}()
	return ctx
}

func declareTools(h *host.Host, journal *journal) {
	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "get_weather",
		Description:     "Tells the current weather in a city.",
		InputSchemaJson: schema("city", "string"),
		Effect:          pb.EffectClass_EFFECT_CLASS_READ_ONLY,
	}, func(ctx context.Context, call *host.Call, in struct{ City string }) (any, error) {
		return struct {
			City        string `json:"city"`
			Temperature int    `json:"temperature"`
			Condition   string `json:"condition"`
		}{in.City, 25, "sunny"}, nil
	})

	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "add",
		Description:     "Adds two numbers.",
		InputSchemaJson: schema("a", "number", "b", "number"),
		Effect:          pb.EffectClass_EFFECT_CLASS_IDEMPOTENT,
	}, func(ctx context.Context, call *host.Call, in struct{ A, B float64 }) (any, error) {
		return in.A + in.B, nil
	})

	host.AddTool(h, &pb.ToolDeclaration{
		Name:             "send_email",
		Description:      "Sends an email.",
		InputSchemaJson:  schema("to", "string", "subject", "string"),
		Effect:           pb.EffectClass_EFFECT_CLASS_UNSAFE,
		RequiresApproval: true,
	}, func(ctx context.Context, call *host.Call, in struct{ To, Subject string }) (any, error) {
		if err := journal.write("send_email %s %s", call.IdempotencyKey, in.To); err != nil {
			return nil, err
		}
		return map[string]bool{"sent": true}, nil
	})

	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "slow",
		Description:     "Takes its time, and shows how far it is.",
		InputSchemaJson: schema("seconds", "number", "label", "string"),
		Effect:          pb.EffectClass_EFFECT_CLASS_READ_ONLY,
		StreamsOutput:   true,
	}, func(ctx context.Context, call *host.Call, in slowArguments) (any, error) {
		return slow(ctx, call, in, journal)
	})

	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "charge",
		Description:     "Charges an amount of money.",
		InputSchemaJson: schema("amount", "number", "seconds", "number"),
		Effect:          pb.EffectClass_EFFECT_CLASS_UNSAFE,
	}, func(ctx context.Context, call *host.Call, in struct{ Amount, Seconds float64 }) (any, error) {
		if err := journal.write("charge %s %d", call.CallID, call.Attempt); err != nil {
			return nil, err
		}
		if err := sleep(ctx, in.Seconds); err != nil {
			return nil, err
		}
		return map[string]float64{"charged": in.Amount}, nil
	})

	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "fail",
		Description:     "Fails, always.",
		InputSchemaJson: schema("retryable", "boolean"),
		Effect:          pb.EffectClass_EFFECT_CLASS_READ_ONLY,
	}, func(ctx context.Context, call *host.Call, in struct{ Retryable bool }) (any, error) {
		return nil, &host.ToolError{
			Message:   "this tool always fails",
			Retryable: in.Retryable,
			Effect:    pb.AttemptEffect_ATTEMPT_EFFECT_NONE,
		}
	})
}

// schema is that of an object that must have these properties: names and types in turn.
func schema(namesAndTypes ...string) string {
	var properties, required []string
	for pair := range slices.Chunk(namesAndTypes, 2) {
		properties = append(properties, fmt.Sprintf(`%q:{"type":%q}`, pair[0], pair[1]))
		required = append(required, fmt.Sprintf("%q", pair[0]))
	}
	return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s],"additionalProperties":false}`,
		strings.Join(properties, ","), strings.Join(required, ","))
}

type slowArguments struct {
	Label   string  `json:"label"`
	Seconds float64 `json:"seconds"`
}

func slow(ctx context.Context, call *host.Call, in slowArguments, journal *journal) (any, error) {
	if err := journal.write("slow-start %s %d", call.CallID, call.Attempt); err != nil {
		return nil, err
	}
	steps := math.Round(in.Seconds * 10)
	for step := 1.0; step <= steps; step++ {
		if err := sleep(ctx, 0.1); err != nil {
			_ = journal.write("slow-cancelled %s", call.CallID) // nobody wants its error any more
			return nil, err
		}
		call.Progress(fmt.Sprintf("%s: %v of %v", in.Label, step, steps), step/steps)
		fmt.Fprintf(call, "%s %v\n", in.Label, step)
	}
	return in, journal.write("slow-end %s", call.CallID)
}

func sleep(ctx context.Context, seconds float64) error {
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// journal appends lines to a file, each on disk before the next thing happens. Without a path, to nowhere.
type journal struct {
	path string
	mu   sync.Mutex
}

func (j *journal) write(format string, values ...any) error {
	if j.path == "" {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	file, err := os.OpenFile(j.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, format+"\n", values...); err != nil {
		return err
	}
	return file.Sync()
}
