package host

import (
	"math"
	"unicode/utf8"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/protobuf/proto"
)

// overheadBytes is what a frame has beside a call's id and its payload, at most: tags, lengths, numbers.
const overheadBytes = 64

// frameBound is the largest frame that the server takes, as its last welcome has it; 0 is none.
type frameBound uint64

func (b frameBound) bytes() int {
	if b == 0 || b > math.MaxInt {
		return math.MaxInt
	}
	return int(b)
}

func (b frameBound) takes(frame *pb.ConnectRequest) bool { return proto.Size(frame) <= b.bytes() }

// beside is how many of these bytes have room in a frame about a call, at least one.
func (b frameBound) beside(callID string, most int) int {
	return max(1, min(most, b.bytes()-len(callID)-overheadBytes))
}

// cut is what a frame can carry of a text, in at most so many bytes, cut between characters.
func cut(text string, most int) string {
	text = valid(text)
	if len(text) <= most {
		return text
	}
	end := max(0, most)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
