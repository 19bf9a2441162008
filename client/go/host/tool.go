package host

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	pb "agentloop/client/go/agentloop/v1"
)

// tool is a declaration and what it runs.
type tool struct {
	declaration *pb.ToolDeclaration
	prepare     func(argumentsJSON string) (invocation, error)
}

// invocation is a tool with its arguments.
type invocation func(context.Context, *Call) (any, error)

// AddTool declares a tool, before Run. Its arguments are decoded into In, strictly. What it returns is what the model
// reads: a string as it is, anything else as JSON. When ctx is done, nobody wants the result any more: it cleans up and
// returns ctx.Err().
func AddTool[In any](
	h *Host, declaration *pb.ToolDeclaration, run func(ctx context.Context, call *Call, in In) (any, error),
) {
	h.tools = append(h.tools, &tool{declaration, func(argumentsJSON string) (invocation, error) {
		var in In
		if err := decodeObject(argumentsJSON, &in); err != nil {
			return nil, err
		}
		return func(ctx context.Context, call *Call) (any, error) { return run(ctx, call, in) }, nil
	}})
}

func decodeObject(text string, into any) error {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return errors.New("the arguments are no JSON object")
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
