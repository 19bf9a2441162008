// An example tool host with six tools, from a read-only one to one that must not run twice.
package main

import (
	"context"
	"fmt"
	"math"
	"time"

	pb "agentloop/client/go/agentloop/v1"
	"agentloop/client/go/cmd/internal/example"
	"agentloop/client/go/host"
)

func main() { example.Serve(declareTools) }

func declareTools(h *host.Host, effects *example.EffectsFile) {
	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "get_weather",
		Description:     "Tells the current weather in a city.",
		Title:           "Weather in {city}",
		InputSchemaJson: example.Schema("city", "string"),
		Effect:          pb.EffectClass_EFFECT_CLASS_READ_ONLY,
	}, func(ctx context.Context, call *host.Call, in struct{ City string }) (any, error) {
		return struct {
			City    string  `json:"city"`
			Celsius float64 `json:"celsius"`
			Sky     string  `json:"sky"`
		}{in.City, 8.5, "clear"}, nil
	})

	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "add",
		Description:     "Adds two numbers.",
		InputSchemaJson: example.Schema("a", "number", "b", "number"),
		Effect:          pb.EffectClass_EFFECT_CLASS_READ_ONLY,
	}, func(ctx context.Context, call *host.Call, in struct{ A, B float64 }) (any, error) {
		return in.A + in.B, nil
	})

	host.AddTool(h, &pb.ToolDeclaration{
		Name:             "send_email",
		Description:      "Sends an email.",
		InputSchemaJson:  example.Schema("to", "string", "subject", "string", "body", "string"),
		Effect:           pb.EffectClass_EFFECT_CLASS_UNSAFE,
		RequiresApproval: true,
	}, func(ctx context.Context, call *host.Call, in struct{ To, Subject, Body string }) (any, error) {
		if err := effects.Write("send_email %s %s", call.IdempotencyKey, in.To); err != nil {
			return nil, err
		}
		return "sent to " + in.To, nil
	})

	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "slow",
		Description:     "Takes its time, and shows how far it is.",
		InputSchemaJson: example.Schema("seconds", "number", "label", "string"),
		Effect:          pb.EffectClass_EFFECT_CLASS_READ_ONLY,
		StreamsOutput:   true,
	}, func(ctx context.Context, call *host.Call, in slowArguments) (any, error) {
		return slow(ctx, call, in, effects)
	})

	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "charge",
		Description:     "Charges an amount of money.",
		InputSchemaJson: example.Schema("amount", "number", "seconds", "number"),
		Effect:          pb.EffectClass_EFFECT_CLASS_UNSAFE,
	}, func(ctx context.Context, call *host.Call, in struct{ Amount, Seconds float64 }) (any, error) {
		if err := effects.Write("charge %s %d", call.CallID, call.Attempt); err != nil {
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
		InputSchemaJson: example.Schema("retryable", "boolean"),
		Effect:          pb.EffectClass_EFFECT_CLASS_READ_ONLY,
	}, func(ctx context.Context, call *host.Call, in struct{ Retryable bool }) (any, error) {
		return nil, &host.ToolError{
			Message:   "this tool always fails",
			Retryable: in.Retryable,
			Effect:    pb.AttemptEffect_ATTEMPT_EFFECT_NONE,
		}
	})
}

type slowArguments struct {
	Label   string  `json:"label"`
	Seconds float64 `json:"seconds"`
}

func slow(ctx context.Context, call *host.Call, in slowArguments, effects *example.EffectsFile) (any, error) {
	if err := effects.Write("slow-start %s %d", call.CallID, call.Attempt); err != nil {
		return nil, err
	}
	steps := math.Round(in.Seconds * 10)
	for step := 1.0; step <= steps; step++ {
		if err := sleep(ctx, 0.1); err != nil {
			_ = effects.Write("slow-cancelled %s", call.CallID) // the call is over, so its error has no use
			return nil, err
		}
		call.Progress(fmt.Sprintf("%s: %v of %v", in.Label, step, steps), step/steps)
		fmt.Fprintf(call, "%s %v\n", in.Label, step)
	}
	return in, effects.Write("slow-end %s", call.CallID)
}

func sleep(ctx context.Context, seconds float64) error {
	select {
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
