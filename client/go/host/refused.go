package host

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// RefusedError is the error of Run where the server refuses the host for a lasting reason, such as a wrong token.
type RefusedError struct {
	Reason string // for people
}

func (e *RefusedError) Error() string { return "the server refused the host: " + e.Reason }

// replaced is the status after a welcome of a stream whose host id another connection took. It is of another process: this
// one reads no stream any more when it connects again.
const replaced = codes.FailedPrecondition

// Statuses that stay the same, however often the host tries: after a welcome, and before one.
var (
	wrongCredentials = []codes.Code{codes.Unauthenticated, codes.PermissionDenied}
	lasting          = append([]codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented},
		wrongCredentials...)
)

// refusalOr is a *RefusedError if another connection would end with the same error, and else the error.
func refusalOr(err error, hostID string, welcomed bool) error {
	if welcomed && status.Code(err) == replaced {
		return &RefusedError{Reason: fmt.Sprintf("another host took the id %q; give each host its own id", hostID)}
	}
	final := lasting
	if welcomed {
		final = wrongCredentials
	}
	if code := status.Code(err); slices.Contains(final, code) {
		return &RefusedError{Reason: fmt.Sprintf("%v: %s", code, status.Convert(err).Message())}
	}
	return err
}
