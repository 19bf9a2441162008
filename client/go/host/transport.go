package host

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// transport is the address without its scheme, and the credentials that the scheme asks for.
func (o Options) transport() (string, credentials.TransportCredentials, error) {
	server, encrypted := strings.CutPrefix(o.Server, "https://")
	server = strings.TrimSuffix(strings.TrimPrefix(server, "http://"), "/")
	switch {
	case o.Credentials != nil:
		return server, o.Credentials, nil
	case !encrypted && (o.CA != nil || o.Certificate != nil || o.Key != nil):
		return "", nil, errors.New("certificates need an address that begins with https://")
	case !encrypted:
		return server, insecure.NewCredentials(), nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(o.CA) {
			return "", nil, errors.New("CA has no certificate in PEM")
		}
	}
	if o.Certificate != nil || o.Key != nil {
		pair, err := tls.X509KeyPair(o.Certificate, o.Key)
		if err != nil {
			return "", nil, fmt.Errorf("the certificate of the host: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return server, credentials.NewTLS(config), nil
}

// authorized adds the bearer token to the calls of a context.
func (o Options) authorized(ctx context.Context) context.Context {
	if o.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+o.Token)
}
