package host

import (
	"sync"

	pb "agentloop/client/go/agentloop/v1"
)

// With more frames queued, progress and output of tools wait; other frames do not.
const maxQueuedFrames = 64

// outbox is the queue of frames for the one writer of a stream.
type outbox struct {
	mu       sync.Mutex
	changed  *sync.Cond
	frames   []*pb.ConnectRequest
	finished bool
}

func newOutbox() *outbox {
	o := &outbox{}
	o.changed = sync.NewCond(&o.mu)
	return o
}

func (o *outbox) push(frame *pb.ConnectRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.append(frame)
}

func (o *outbox) pushWhenRoom(frame *pb.ConnectRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.frames) >= maxQueuedFrames && !o.finished {
		o.changed.Wait()
	}
	o.append(frame)
}

func (o *outbox) append(frame *pb.ConnectRequest) {
	if !o.finished {
		o.frames = append(o.frames, frame)
		o.changed.Broadcast()
	}
}

// pop waits for a frame. It returns false when the outbox is finished and empty.
func (o *outbox) pop() (*pb.ConnectRequest, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.frames) == 0 && !o.finished {
		o.changed.Wait()
	}
	if len(o.frames) == 0 {
		return nil, false
	}
	frame := o.frames[0]
	o.frames = o.frames[1:]
	o.changed.Broadcast()
	return frame, true
}

// finish closes the outbox for new frames; those that are queued are still sent.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished = true
	o.changed.Broadcast()
}
