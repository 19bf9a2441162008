package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"

	pb "agentloop/client/go/agentloop/v1"

	"google.golang.org/grpc"
)

// blobMemory is a server that keeps blobs in memory.
type blobMemory struct {
	pb.UnimplementedBlobsServer
	stored map[string][]byte
	types  []string
}

func (m *blobMemory) PutBlob(stream grpc.ClientStreamingServer[pb.PutBlobRequest, pb.PutBlobResponse]) error {
	var contents []byte
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if header := request.GetHeader(); header != nil {
			m.types = append(m.types, header.GetMediaType())
		}
		contents = append(contents, request.GetChunk()...)
	}
	sum := sha256.Sum256(contents)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	m.stored[digest] = contents
	return stream.SendAndClose(&pb.PutBlobResponse{
		Header: &pb.BlobHeader{Digest: digest, SizeBytes: uint64(len(contents))},
	})
}

func (m *blobMemory) GetBlob(request *pb.GetBlobRequest, stream grpc.ServerStreamingServer[pb.GetBlobResponse]) error {
	contents := m.stored[request.GetDigest()]
	header := &pb.BlobHeader{Digest: request.GetDigest(), SizeBytes: uint64(len(contents))}
	if err := stream.Send(&pb.GetBlobResponse{Part: &pb.GetBlobResponse_Header{Header: header}}); err != nil {
		return err
	}
	return stream.Send(&pb.GetBlobResponse{Part: &pb.GetBlobResponse_Chunk{Chunk: contents}})
}

func blobHost(t *testing.T) (*Host, *blobMemory) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	memory := &blobMemory{stored: map[string][]byte{}}
	server := grpc.NewServer()
	pb.RegisterBlobsServer(server, memory)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return New(Options{Server: listener.Addr().String()}), memory
}

func TestAFileIsStoredAndRead(t *testing.T) {
	h, memory := blobHost(t)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	contents := bytes.Repeat([]byte("0123456789"), 70_000) // more than two chunks
	file, err := h.PutFile(ctx, "a.txt", "text/plain", bytes.NewReader(contents))
	if err != nil {
		t.Fatal(err)
	}
	if file.GetName() != "a.txt" || file.GetSizeBytes() != uint64(len(contents)) || memory.types[0] != "text/plain" {
		t.Fatalf("stored as %v, %v", file, memory.types)
	}
	var read bytes.Buffer
	if err := h.CopyBlob(ctx, file.GetBlobDigest(), &read); err != nil || !bytes.Equal(read.Bytes(), contents) {
		t.Fatalf("read %d bytes: %v", read.Len(), err)
	}
	memory.stored[file.GetBlobDigest()] = []byte("other")
	if h.CopyBlob(ctx, file.GetBlobDigest(), io.Discard) == nil {
		t.Fatal("other bytes were taken for the blob")
	}
}

func TestAFileThatCannotBeReadIsNotStored(t *testing.T) {
	h, memory := blobHost(t)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	for _, broken := range []error{errors.New("broken"), io.ErrUnexpectedEOF} {
		contents := io.MultiReader(bytes.NewReader([]byte("half")), iotest.ErrReader(broken))
		if _, err := h.PutFile(ctx, "a", "", contents); !errors.Is(err, broken) {
			t.Fatalf("the error is %v", err)
		}
	}
	if len(memory.stored) != 0 {
		t.Fatal("half of it was stored")
	}
}
