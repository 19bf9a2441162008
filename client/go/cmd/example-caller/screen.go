package main

import (
	"fmt"
	"strings"

	pb "agentloop/client/go/agentloop/v1"
)

// screen shows text as it comes, and lines between.
type screen struct {
	shown     string
	modelCall uint32
	attempt   uint32
	deltaSeq  uint64
	inLine    bool
}

// modelEvent is about one try of a model call: each begins its text anew.
type modelEvent interface {
	GetModelCall() uint32
	GetAttempt() uint32
}

func (s *screen) line(format string, values ...any) {
	if s.inLine {
		fmt.Println()
	}
	fmt.Printf(format+"\n", values...)
	s.inLine = false
}

func (s *screen) delta(delta *pb.ModelDelta) {
	s.begin(delta)
	if delta.DeltaSeq > s.deltaSeq {
		s.deltaSeq = delta.DeltaSeq
		s.text(delta.GetText())
	}
}

// skipTo leaves out the deltas up to one.
func (s *screen) skipTo(event modelEvent, deltaSeq uint64) {
	s.begin(event)
	s.deltaSeq = max(s.deltaSeq, deltaSeq)
}

// message is a whole message, or all of it so far: what is not shown yet is added, what differs is shown again.
func (s *screen) message(event interface {
	modelEvent
	GetMessage() *pb.Message
}) {
	s.begin(event)
	text := textOf(event.GetMessage())
	if !strings.HasPrefix(text, s.shown) {
		s.line("")
		s.shown = ""
	}
	s.text(text[len(s.shown):])
}

func (s *screen) begin(event modelEvent) {
	if s.modelCall == event.GetModelCall() && s.attempt == event.GetAttempt() {
		return
	}
	s.modelCall, s.attempt = event.GetModelCall(), event.GetAttempt()
	s.shown, s.deltaSeq = "", 0
}

func (s *screen) text(text string) {
	s.shown += text
	s.inLine = s.inLine || text != ""
	fmt.Print(text)
}
