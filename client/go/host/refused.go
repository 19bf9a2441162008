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

// Statuses that stay the same, however often the host tries: after a welcome, and before one.
var (
	wrongCredentials = []codes.Code{codes.Unauthenticated, codes.PermissionDenied}
	lasting          = append([]codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented},
		wrongCredentials...)
)

// refusalOr is a *RefusedError if another connection would end with the same error, and else the error.
func refusalOr(err error, welcomed bool) error {
	final := lasting
	if welcomed {
		final = wrongCredentials
	}
	if code := status.Code(err); slices.Contains(final, code) {
		return &RefusedError{Reason: fmt.Sprintf("%v: %s", code, status.Convert(err).Message())}
	}
	return err
}
