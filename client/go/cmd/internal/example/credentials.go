package example

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Credentials is the address without its scheme, and the options for the credentials of the environment:
// AGENTLOOP_CA_FILE, _CERT_FILE, _KEY_FILE and AGENTLOOP_TOKEN.
func Credentials(server string) (string, []grpc.DialOption, error) {
	var options []grpc.DialOption
	value, err := tokenFor(server)
	if err != nil {
		return "", nil, err
	}
	if value != "" {
		options = append(options, grpc.WithPerRPCCredentials(token(value)))
	}
	address, encrypted := strings.CutPrefix(server, "https://")
	if !encrypted {
		address = strings.TrimPrefix(address, "http://")
		return address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials())), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca := fileOf("AGENTLOOP_CA_FILE"); ca != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return "", nil, errors.New("AGENTLOOP_CA_FILE has no certificate in PEM")
		}
	}
	if certificate, key := fileOf("AGENTLOOP_CERT_FILE"), fileOf("AGENTLOOP_KEY_FILE"); certificate != nil || key != nil {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return "", nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return address, append(options, grpc.WithTransportCredentials(credentials.NewTLS(config))), nil
}

// tokenFor is AGENTLOOP_TOKEN, if it is set. It fails where the token would travel unencrypted to another machine, unless
// AGENTLOOP_ALLOW_INSECURE_REMOTE is "true".
func tokenFor(server string) (string, error) {
	value := os.Getenv("AGENTLOOP_TOKEN")
	if value != "" && os.Getenv("AGENTLOOP_ALLOW_INSECURE_REMOTE") != "true" && !keepsSecret(server) {
		return "", fmt.Errorf("the token would travel unencrypted to %s: use https://, or set "+
			"AGENTLOOP_ALLOW_INSECURE_REMOTE=true if the network between is trusted", server)
	}
	return value, nil
}

// keepsSecret is true if nobody on the way reads along: the address is https://, or of this machine.
func keepsSecret(server string) bool {
	if strings.HasPrefix(server, "https://") {
		return true
	}
	host := strings.TrimPrefix(server, "http://")
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	address := net.ParseIP(host)
	return host == "localhost" || address != nil && address.IsLoopback()
}

// token is a bearer token, which is presented with each call.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity is false: on this machine the port may be plain.
func (t token) RequireTransportSecurity() bool { return false }
