package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	pb "agentloop/client/go/agentloop/v1"
)

const blobChunkBytes = 256 << 10 // the server takes up to 1 MiB

// PutFile stores contents that are too large for a result of 3 MiB as a blob. It returns the file for Output.Files.
func (h *Host) PutFile(ctx context.Context, name, mediaType string, contents io.Reader) (*pb.FileContent, error) {
	channel, err := h.dial()
	if err != nil {
		return nil, err
	}
	defer channel.Close()
	// Cancelled after an error: the upload is incomplete.
	ctx, cancel := context.WithCancel(h.options.authorized(ctx))
	defer cancel()
	upload, err := pb.NewBlobsClient(channel).PutBlob(ctx)
	if err != nil {
		return nil, err
	}
	header := &pb.PutBlobRequest{Part: &pb.PutBlobRequest_Header{Header: &pb.BlobHeader{MediaType: mediaType}}}
	if err := upload.Send(header); err == nil {
		if err := sendChunks(upload.Send, contents); err != nil {
			return nil, err
		}
	}
	stored, err := upload.CloseAndRecv()
	if err != nil {
		return nil, err
	}
	return &pb.FileContent{
		Name: name, MediaType: mediaType, SizeBytes: stored.GetHeader().GetSizeBytes(),
		Source: &pb.FileContent_BlobDigest{BlobDigest: stored.GetHeader().GetDigest()},
	}, nil
}

// sendChunks sends all contents. The error is that of the contents: why the server takes no more is in its answer.
func sendChunks(send func(*pb.PutBlobRequest) error, contents io.Reader) error {
	buffer := make([]byte, blobChunkBytes)
	for {
		size, err := fill(buffer, contents)
		if size > 0 {
			chunk := &pb.PutBlobRequest{Part: &pb.PutBlobRequest_Chunk{Chunk: buffer[:size]}}
			if send(chunk) != nil {
				return nil
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// fill reads until the buffer is full. Unlike io.ReadFull, it tells the end of the contents, io.EOF, from contents that
// broke off, such as a download with io.ErrUnexpectedEOF.
func fill(buffer []byte, contents io.Reader) (size int, err error) {
	for size < len(buffer) && err == nil {
		var read int
		read, err = contents.Read(buffer[size:])
		size += read
	}
	return size, err
}

// CopyBlob writes the bytes of a blob. After an error, what was written is not the whole.
func (h *Host) CopyBlob(ctx context.Context, digest string, into io.Writer) error {
	channel, err := h.dial()
	if err != nil {
		return err
	}
	defer channel.Close()
	ctx, cancel := context.WithCancel(h.options.authorized(ctx))
	defer cancel()
	chunks, err := pb.NewBlobsClient(channel).GetBlob(ctx, &pb.GetBlobRequest{Digest: digest})
	if err != nil {
		return err
	}
	seen := sha256.New()
	for {
		response, err := chunks.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		seen.Write(response.GetChunk())
		if _, err := into.Write(response.GetChunk()); err != nil {
			return err
		}
	}
	if digest != "sha256:"+hex.EncodeToString(seen.Sum(nil)) {
		return fmt.Errorf("the bytes that came are not those of the blob %s", digest)
	}
	return nil
}
