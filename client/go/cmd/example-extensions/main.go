// An example host with extensions: a planner, hooks, a context source that remembers, a runtime, and questions.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "agentloop/client/go/agentloop/v1"
	"agentloop/client/go/cmd/internal/example"
	"agentloop/client/go/host"
)

// picture is the smallest valid image.
const picture = "GIF89a\x01\x00\x01\x00\x00\x00\x00;"

func main() {
	example.Serve(func(h *host.Host, effects *example.EffectsFile) {
		declarePlanner(h)
		declareHook(h, effects)
		declareMemory(h, effects)
		declareRuntime(h, effects)
		declareBooking(h, effects)
	})
}

// declarePlanner declares the default loop with one change: a human must approve every tool call.
func declarePlanner(h *host.Host) {
	declaration := &pb.PlannerDeclaration{Name: "careful", Description: "Asks a human about every tool call."}
	h.AddPlanner(declaration, func(_ context.Context, request *pb.PlanRequest, _ *pb.Run) (*pb.Instruction, error) {
		switch request.Situation {
		case pb.PlanSituation_PLAN_SITUATION_TOOLS_WANTED:
			return &pb.Instruction{Instruction: &pb.Instruction_RequestHumanApprove{}}, nil
		case pb.PlanSituation_PLAN_SITUATION_ANSWERED:
			return &pb.Instruction{Instruction: &pb.Instruction_Finish{}}, nil
		case pb.PlanSituation_PLAN_SITUATION_PROMPTED,
			pb.PlanSituation_PLAN_SITUATION_TOOLS_SETTLED,
			pb.PlanSituation_PLAN_SITUATION_COMPACTED:
			return &pb.Instruction{Instruction: &pb.Instruction_CallModel{}}, nil
		}
		return &pb.Instruction{Instruction: &pb.Instruction_CallTools{}}, nil
	})
}

// declareHook declares a hook that keeps passwords out of tools and sessions, and notes every finished run.
func declareHook(h *host.Host, effects *example.EffectsFile) {
	declaration := &pb.HookDeclaration{
		Name:        "guard",
		Description: "Keeps secrets out.",
		Points: []pb.HookPoint{
			pb.HookPoint_HOOK_POINT_PRE_RUN,
			pb.HookPoint_HOOK_POINT_PRE_TOOL,
			pb.HookPoint_HOOK_POINT_POST_TOOL,
			pb.HookPoint_HOOK_POINT_POST_RUN,
		},
		Required: true,
	}
	h.AddHook(declaration, func(_ context.Context, request *pb.HookRequest, run *pb.Run) (*pb.HookVerdict, error) {
		switch request.Point {
		case pb.HookPoint_HOOK_POINT_PRE_RUN:
			return &pb.HookVerdict{SystemPromptAddition: "Never repeat a password."}, nil
		case pb.HookPoint_HOOK_POINT_PRE_TOOL:
			return judge(request.ToolCall)
		case pb.HookPoint_HOOK_POINT_POST_TOOL:
			return hide(request.ToolResult), nil
		case pb.HookPoint_HOOK_POINT_POST_RUN:
			return nil, effects.Write("filed %s", run.RunId)
		}
		return nil, nil
	})
}

func judge(call *pb.ToolCall) (*pb.HookVerdict, error) {
	var in struct{ Page string }
	if err := json.Unmarshal([]byte(call.ArgumentsJson), &in); err != nil {
		return nil, err
	}
	if !strings.Contains(in.Page, "password") {
		return nil, nil
	}
	veto := "pages with passwords are not opened"
	return &pb.HookVerdict{Veto: &veto}, nil
}

func hide(result *pb.ToolResult) *pb.HookVerdict {
	output := strings.ReplaceAll(result.Output, "hunter2", "[hidden]")
	if output == result.Output {
		return nil
	}
	return &pb.HookVerdict{Output: &output, Annotation: "a password was hidden"}
}

// diary has the remembered messages of all runs.
type diary struct {
	mu   sync.Mutex
	said []*pb.ContextItem
}

// declareMemory declares a context source that remembers the messages of runs, and adds them to later ones.
func declareMemory(h *host.Host, effects *example.EffectsFile) {
	d := &diary{}
	declaration := &pb.ContextSourceDeclaration{Name: "diary", Description: "What was said before."}
	h.AddContextSource(declaration, d.give, func(_ context.Context, request *pb.RememberRequest, run *pb.Run) error {
		d.note(request, run)
		return effects.Write("remembered %s", run.RunId)
	})
}

func (d *diary) give(context.Context, *pb.ContextRequest, *pb.Run) ([]*pb.ContextItem, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.said[max(0, len(d.said)-10):]), nil
}

func (d *diary) note(request *pb.RememberRequest, run *pb.Run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, message := range request.Messages {
		var text strings.Builder
		for _, part := range message.Parts {
			text.WriteString(part.GetText())
		}
		known := slices.ContainsFunc(d.said, func(item *pb.ContextItem) bool { return item.Text == text.String() })
		if text.Len() > 0 && !known {
			d.said = append(d.said, &pb.ContextItem{Text: text.String(), Origin: run.SessionId})
		}
	}
}

type browser struct {
	profile string
	pages   atomic.Int64
}

// declareRuntime declares a browser for each run, opened before its first page and closed after its last.
func declareRuntime(h *host.Host, effects *example.EffectsFile) {
	host.SetRuntime(h,
		func(_ context.Context, request *pb.OpenRuntime) (*browser, error) {
			var init struct{ Profile string }
			if err := json.Unmarshal([]byte(cmp.Or(request.InitDataJson, "{}")), &init); err != nil {
				return nil, err
			}
			opened := &browser{profile: cmp.Or(init.Profile, "default")}
			return opened, effects.Write("opened %s", opened.profile)
		},
		func(_ context.Context, opened *browser) error {
			return effects.Write("closed %s after %d", opened.profile, opened.pages.Load())
		},
	)
	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "browse",
		Description:     "Opens a page.",
		InputSchemaJson: example.Schema("page", "string"),
		Effect:          pb.EffectClass_EFFECT_CLASS_READ_ONLY,
		RequiresRuntime: true,
	}, func(_ context.Context, call *host.Call, in struct{ Page string }) (any, error) {
		opened := call.Runtime.(*browser)
		page := opened.pages.Add(1)
		return fmt.Sprintf("page %d in %s: %s, signed in with hunter2", page, opened.profile, in.Page), nil
	})
}

// declareBooking declares a tool that asks a human while it runs.
func declareBooking(h *host.Host, effects *example.EffectsFile) {
	host.AddTool(h, &pb.ToolDeclaration{
		Name:            "book",
		Description:     "Books a seat.",
		InputSchemaJson: example.Schema("patience", "number"),
		Effect:          pb.EffectClass_EFFECT_CLASS_UNSAFE,
	}, func(ctx context.Context, call *host.Call, in struct{ Patience float64 }) (any, error) {
		return book(ctx, call, time.Duration(in.Patience*float64(time.Second)), effects)
	})
}

func book(ctx context.Context, call *host.Call, patience time.Duration, effects *example.EffectsFile) (any, error) {
	if err := effects.Write("booking %s", call.CallID); err != nil {
		return nil, err
	}
	seat, err := call.Ask(ctx, host.Question{Text: "Which seat?", Name: "seat"})
	if err != nil {
		return nil, err
	}
	side, err := call.Choose(ctx, host.Question{Text: "Which side?", Timeout: patience},
		host.Option{ID: "a", Label: "aisle"}, host.Option{ID: "w", Label: "window"})
	var noAnswer *host.NoAnswerError
	if errors.As(err, &noAnswer) {
		return fmt.Sprintf("seat %s, and no side: %v", seat, noAnswer), nil
	}
	if err != nil {
		return nil, err
	}
	meals, err := call.ChooseSeveral(ctx, host.Question{Text: "Which meals?"},
		host.Option{ID: "lunch", Label: "lunch"}, host.Option{ID: "dinner", Label: "dinner"})
	if err != nil {
		return nil, err
	}
	boardingPass := &pb.Image{Source: &pb.Image_Data{Data: []byte(picture)}, MediaType: "image/gif"}
	text := fmt.Sprintf("seat %s, %s, with %s", seat, side, strings.Join(meals, " and "))
	return host.Output{Text: text, Images: []*pb.Image{boardingPass}}, effects.Write("booked %s", call.CallID)
}
