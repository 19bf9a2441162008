package main

import (
	"fmt"
	"strings"

	pb "agentloop/client/go/agentloop/v1"
)

// screen prints the model's text as it comes, and lines about events between.
type screen struct {
	shown     string
	modelCall uint32
	attempt   uint32
	deltaSeq  uint64
	inLine    bool
}

// modelEvent is an event about an attempt of a model call. Each attempt starts a new text.
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

// skipTo drops the deltas up to this number.
func (s *screen) skipTo(event modelEvent, deltaSeq uint64) {
	s.begin(event)
	s.deltaSeq = max(s.deltaSeq, deltaSeq)
}

// message shows the missing rest of a whole or partial message, or all of it if the shown text differs.
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
