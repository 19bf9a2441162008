package example

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
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
	if value := os.Getenv("AGENTLOOP_TOKEN"); value != "" {
		options = append(options, grpc.WithPerRPCCredentials(token(value)))
	}
	address, encrypted := strings.CutPrefix(server, "https://")
	if !encrypted {
		address = strings.TrimPrefix(server, "http://")
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

// token is a bearer token, which is presented with each call.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity is false: on this machine the port may be plain.
func (t token) RequireTransportSecurity() bool { return false }
