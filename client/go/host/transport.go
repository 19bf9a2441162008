package host

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// transport is the address without its scheme, and the credentials that the options ask for. The error says which option
// cannot be used.
func (o Options) transport() (string, credentials.TransportCredentials, error) {
	address, encrypted, err := addressOf(o.Server)
	hasCertificates := o.CA != nil || o.Certificate != nil || o.Key != nil
	switch {
	case err != nil:
		return "", nil, err
	case strings.ContainsFunc(o.Token, func(r rune) bool { return r < ' ' || r > '~' }):
		return "", nil, errors.New("the token has characters that a header cannot carry")
	case !encrypted && hasCertificates:
		return "", nil, errors.New("certificates need an address that begins with https://")
	case o.Credentials != nil && hasCertificates:
		return "", nil, errors.New("give either Credentials, or CA, Certificate and Key")
	case o.Credentials != nil:
		return address, o.Credentials, nil
	case !encrypted:
		return address, insecure.NewCredentials(), nil
	}
	config, err := o.tlsConfig()
	if err != nil {
		return "", nil, err
	}
	return address, credentials.NewTLS(config), nil
}

// addressOf is the address without its scheme, and true if the connection is encrypted.
func addressOf(server string) (string, bool, error) {
	text := server
	if !strings.Contains(server, "://") {
		text = "http://" + server
	}
	parsed, err := url.Parse(text)
	// Only a host and a port: nothing before them, and nothing behind.
	if err != nil || parsed.Hostname() == "" || strings.ContainsAny(server, "@?# ") || strings.Trim(parsed.Path, "/") != "" ||
		parsed.Scheme != "https" && parsed.Scheme != "http" || !isPort(cmp.Or(parsed.Port(), "1")) {
		return "", false, fmt.Errorf("%q is no address of a server: write host:port, or https:// before it", server)
	}
	return parsed.Host, parsed.Scheme == "https", nil
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

// url is the address with its scheme, for people.
func (o Options) url() string {
	address, encrypted, err := addressOf(o.Server)
	switch {
	case err != nil:
		return o.Server
	case encrypted || o.Credentials != nil && o.Credentials.Info().SecurityProtocol == "tls":
		return "https://" + address
	}
	return "http://" + address
}

func (o Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != nil {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(o.CA) {
			return nil, errors.New("CA has no certificate in PEM")
		}
	}
	switch {
	case o.Certificate == nil && o.Key == nil:
		return config, nil
	case o.Key == nil:
		return nil, errors.New("certificate and key belong together: Key is missing")
	case o.Certificate == nil:
		return nil, errors.New("certificate and key belong together: Certificate is missing")
	}
	pair, err := tls.X509KeyPair(o.Certificate, o.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate of the host: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// authorized adds the bearer token to the calls of a context.
func (o Options) authorized(ctx context.Context) context.Context {
	if o.Token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+o.Token)
}
