package host

import (
	"math"
	"unicode/utf8"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/protobuf/proto"
)

// overheadBytes bounds the bytes of a frame other than the call id and the payload: tags, lengths, numbers.
const overheadBytes = 64

// frameBound is the largest frame that the server accepts, from its last welcome. 0 means no bound.
type frameBound uint64

func (b frameBound) bytes() int {
	if b == 0 || b > math.MaxInt {
		return math.MaxInt
	}
	return int(b)
}

func (b frameBound) fits(frame *pb.ConnectRequest) bool { return proto.Size(frame) <= b.bytes() }

// payloadBytes is the payload that fits into a frame about this call: at least 1 byte, at most most.
func (b frameBound) payloadBytes(callID string, most int) int {
	return max(1, min(most, b.bytes()-len(callID)-overheadBytes))
}

// cut makes a text valid UTF-8, and cuts it to at most most bytes, between characters.
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
