// Command franz uses a broker with franz-go: it produces a record, and one for each line of its
// standard input; it reads some records as a group; or it copies them to another topic, exactly once.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const patience = 20 * time.Second

var (
	bootstrap   = flag.String("bootstrap", "", "the address of the broker")
	mechanism   = flag.String("mechanism", "", "the SASL mechanism; empty for none")
	user        = flag.String("user", "", "the name of the user")
	secret      = flag.String("secret", "", "the password, or the token")
	authority   = flag.String("ca", "", "the trusted authority; empty for a connection without TLS")
	certificate = flag.String("certificate", "", "a certificate and its key, for mTLS")
	topic       = flag.String("topic", "", "the topic")
	value       = flag.String("value", "", "the value to produce; empty to read")
	target      = flag.String("copy", "", "the topic that records are copied to, in transactions")
	count       = flag.Int("count", 1, "the number of records to read")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	options, err := settings()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if *value != "" {
		return produce(ctx, options)
	}
	options = append(options,
		kgo.ConsumerGroup(*topic),
		kgo.ConsumeTopics(*topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if *target != "" {
		return transfer(ctx, options)
	}
	return consume(ctx, options)
}

func settings() ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(*bootstrap, ",")...),
		kgo.AllowAutoTopicCreation(),
		kgo.UnknownTopicRetries(20),
	}
	if *authority != "" {
		config, err := trust()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if *mechanism != "" {
		login, err := login()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.SASL(login))
	}
	return options, nil
}

func trust() (*tls.Config, error) {
	text, err := os.ReadFile(*authority)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("the authority is not a certificate")
	}
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if *certificate != "" {
		own, err := tls.LoadX509KeyPair(*certificate, *certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func login() (sasl.Mechanism, error) {
	switch *mechanism {
	case "PLAIN":
		return plain.Auth{User: *user, Pass: *secret}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scram.Auth{User: *user, Pass: *secret}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: *user, Pass: *secret}.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: *secret}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("no mechanism %q", *mechanism)
}

// produce sends one record, and then one for each line of standard input.
func produce(ctx context.Context, options []kgo.Opt) error {
	client, err := kgo.NewClient(append(options, kgo.DefaultProduceTopic(*topic))...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := send(ctx, client, *value); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := send(context.Background(), client, lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

func send(ctx context.Context, client *kgo.Client, value string) error {
	record := &kgo.Record{Value: []byte(value)}
	return client.ProduceSync(ctx, record).FirstErr()
}

func consume(ctx context.Context, options []kgo.Opt) error {
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	for read := 0; read < *count; {
		fetches := client.PollRecords(ctx, *count-read)
		if err := fetches.Err0(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			fmt.Println(string(record.Value))
			read++
		}
	}
	return client.CommitUncommittedOffsets(ctx)
}

// transfer copies records in transactions that commit the group's offsets, too. Every other
// transaction is aborted at first, so that its records are read and copied again.
func transfer(ctx context.Context, options []kgo.Opt) error {
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.TransactionalID(*target),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(*target),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	isAborted := false
	for copied := 0; copied < *count; {
		fetches := session.PollRecords(ctx, 20)
		if err := fetches.Err0(); err != nil {
			return err
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		outcome := kgo.AbortingFirstErrPromise(session.Client())
		for _, record := range fetches.Records() {
			session.Produce(ctx, &kgo.Record{Value: record.Value}, outcome.Promise())
		}
		if err := outcome.Err(); err != nil {
			return err
		}
		isAborted = !isAborted
		isCommitted, err := session.End(ctx, kgo.TransactionEndTry(!isAborted))
		if err != nil {
			return err
		}
		if isCommitted {
			copied += fetches.NumRecords()
		}
	}
	return nil
}
