// Package example has the parts that the example hosts share: command-line options, and a file that records the effects
// of their tools.
package example

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"agentloop/client/go/host"
)

// Serve runs a host with the tools of declare and the options of the command line, until a signal ends it.
func Serve(declare func(*host.Host, *EffectsFile)) {
	server := flag.String("server", cmp.Or(os.Getenv("AGENTLOOP_SERVER"), "127.0.0.1:50051"), "address of the server")
	hostID := flag.String("host-id", os.Getenv("AGENTLOOP_HOST_ID"), "name of this process")
	effectsPath := flag.String("effects", os.Getenv("AGENTLOOP_EFFECTS"), "file that gets a line for each effect")
	flag.Parse()

	token, err := tokenFor(*server)
	if err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
	var h *host.Host
	h = host.New(host.Options{
		Server:      *server,
		HostID:      *hostID,
		CA:          fileOf("AGENTLOOP_CA_FILE"),
		Certificate: fileOf("AGENTLOOP_CERT_FILE"),
		Key:         fileOf("AGENTLOOP_KEY_FILE"),
		Token:       token,
		OnReady:     func() { fmt.Println("ready", h.ID()) },
	})
	declare(h, &EffectsFile{path: *effectsPath})
	if err := h.Run(untilSignalled()); err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
}

// fileOf is the content of the file that the environment names.
func fileOf(variable string) []byte {
	path := os.Getenv(variable)
	if path == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		slog.Error(err.Error())
		os.Exit(1)
	}
	return content
}

// untilSignalled is done at the first SIGTERM or SIGINT; the second ends the process at once.
func untilSignalled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(1)
	}()
	return ctx
}

// Schema is the JSON schema of an object with these required properties: names and types in turn.
func Schema(namesAndTypes ...string) string {
	var properties, required []string
	for pair := range slices.Chunk(namesAndTypes, 2) {
		properties = append(properties, fmt.Sprintf(`%q:{"type":%q}`, pair[0], pair[1]))
		required = append(required, fmt.Sprintf("%q", pair[0]))
	}
	return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s],"additionalProperties":false}`,
		strings.Join(properties, ","), strings.Join(required, ","))
}

// EffectsFile appends lines to a file, and syncs each. Without a path it does nothing.
type EffectsFile struct {
	path string
	mu   sync.Mutex
}

// Write appends a line, formatted as by fmt.Printf.
func (f *EffectsFile) Write(format string, values ...any) error {
	if f.path == "" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, format+"\n", values...); err != nil {
		return err
	}
	return file.Sync()
}
