package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "agentloop/client/go/agentloop/v1"
)

// tool is a declaration and its function.
type tool struct {
	declaration *pb.ToolDeclaration
	prepare     func(argumentsJSON string) (invocation, error)
}

// invocation is a tool bound to its arguments.
type invocation func(context.Context, *Call) (any, error)

// AddTool declares a tool. It must be called before Run, and panics if the host has a tool of this name. Arguments are
// decoded into In; unknown fields are refused. The model reads the result: a string as text, any other value as JSON. When
// ctx is done, the tool cleans up and returns ctx.Err().
func AddTool[In any](
	h *Host, declaration *pb.ToolDeclaration, run func(ctx context.Context, call *Call, in In) (any, error),
) {
	if slices.ContainsFunc(h.tools, func(other *tool) bool { return other.declaration.Name == declaration.Name }) {
		panic(fmt.Sprintf("the host has a tool %q already", declaration.Name))
	}
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
