// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package sosplice

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// expected is the way that the environment promises: "SO_SPLICE" where the module is loaded,
// "io.Copy" where it is not. Without a promise any way is right.
var expected = os.Getenv("SOSPLICE_EXPECT")

type result struct {
	report Report
	err    error
}

func listen(t testing.TB) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func connect(t testing.TB, l *net.TCPListener) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	// Since Go 1.24 a listener may accept MPTCP, which a dialer has to ask for.
	one, err := net.DialTCP("tcp4", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { one.Close(); other.Close() })
	return one, other
}

// start returns a client and a server, between which Forward runs. Its connections are closed after
// it, as a program does.
func start(t testing.TB) (client, server *net.TCPConn, done chan result) {
	l := listen(t)
	client, a := connect(t, l)
	b, server := connect(t, l)
	done = make(chan result, 1)
	go func() {
		report, err := Forward(a, b)
		a.Close()
		b.Close()
		done <- result{report, err}
	}()
	end := time.Now().Add(time.Minute)
	client.SetDeadline(end)
	server.SetDeadline(end)
	return client, server, done
}

func check(t *testing.T, traffic Traffic, total int) {
	t.Helper()
	if traffic.Total() != int64(total) || traffic.Inexact {
		t.Errorf("%+v, not %d bytes", traffic, total)
	}
	if expected != "" && traffic.Way.String() != expected {
		t.Errorf("%+v, not by %s", traffic, expected)
	}
	if traffic.Way == BySplice && (traffic.Copied != 0 || traffic.Refused != nil) {
		t.Errorf("%+v by SO_SPLICE", traffic)
	}
	if traffic.Way == ByCopy && (traffic.Spliced != 0 || traffic.Refused == nil) {
		t.Errorf("%+v by io.Copy", traffic)
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

func TestHalfClose(t *testing.T) {
	client, server, done := start(t)
	up, down, late := random(1_500_000), random(1_000_000), []byte("after the half-close")
	var work sync.WaitGroup
	run := func(steps func() error) {
		work.Add(1)
		go func() {
			defer work.Done()
			if err := steps(); err != nil {
				t.Error(err)
			}
		}()
	}
	run(func() error {
		if _, err := client.Write(up); err != nil {
			return err
		}
		return client.CloseWrite()
	})
	written := make(chan struct{})
	run(func() error {
		defer close(written)
		_, err := server.Write(down)
		return err
	})
	run(func() error {
		got, err := io.ReadAll(client)
		if !bytes.Equal(got, append(append([]byte{}, down...), late...)) {
			t.Errorf("%d bytes came down, or others", len(got))
		}
		return err
	})
	got, err := io.ReadAll(server)
	if err != nil || !bytes.Equal(got, up) {
		t.Errorf("%d bytes came up, or others: %v", len(got), err)
	}
	<-written
	if _, err := server.Write(late); err != nil {
		t.Error(err)
	}
	server.CloseWrite()
	work.Wait()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	check(t, r.report.AToB, len(up))
	check(t, r.report.BToA, len(down)+len(late))
}

func begin(t *testing.T, client, server net.Conn) {
	t.Helper()
	for _, c := range []net.Conn{client, server} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []net.Conn{client, server} {
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReset(t *testing.T) {
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			client, server, done := start(t)
			begin(t, client, server)
			first, second := client, server
			if side == "server" {
				first, second = server, client
			}
			first.SetLinger(0)
			first.Close()
			if _, err := second.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the other end was not reset: %v", err)
			}
			r := <-done
			var failure *Error
			if !errors.As(r.err, &failure) || !errors.Is(r.err, unix.ECONNRESET) {
				t.Fatalf("%v is not that of a reset", r.err)
			}
			if failure.Conn.RemoteAddr().String() != first.LocalAddr().String() {
				t.Errorf("%v is not of the %s", failure, side)
			}
			check(t, r.report.AToB, 1)
			check(t, r.report.BToA, 1)
		})
	}
}

// An end that has ended its stream resets the connection, while the other end is silent.
func TestResetAfterEnd(t *testing.T) {
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			client, server, done := start(t)
			begin(t, client, server)
			first, second := client, server
			if side == "server" {
				first, second = server, client
			}
			first.CloseWrite()
			if _, err := second.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("no end of the stream: %v", err)
			}
			first.SetLinger(0)
			first.Close()
			select {
			case r := <-done:
				var failure *Error
				if !errors.As(r.err, &failure) || failure.Conn.RemoteAddr().String() != first.LocalAddr().String() {
					t.Fatalf("%v is not of the %s", r.err, side)
				}
				check(t, r.report.AToB, 1)
				check(t, r.report.BToA, 1)
			case <-time.After(time.Minute):
				t.Fatal("the reset is not noticed")
			}
		})
	}
}

// A server answers, and closes before it has read everything: a reset.
func TestEarlyAnswer(t *testing.T) {
	client, server, done := start(t)
	begin(t, client, server)
	answer := random(30_000)
	if _, err := client.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	raw, err := server.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err == nil && n > 0
	})
	if _, err := server.Write(answer); err != nil {
		t.Fatal(err)
	}
	server.Close()
	got, err := io.ReadAll(client)
	if !bytes.Equal(got, answer) || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%d bytes of the answer came, %v", len(got), err)
	}
	if r := <-done; r.err == nil || r.report.BToA.Total() != int64(len(answer))+1 {
		t.Errorf("%+v", r)
	}
}

// cutOff is a server that resets the connection in the middle of its answer, while the client goes on
// sending. A write to the server may take the error of the reset, and a read there then finds an end
// of stream. The client must not take what came for the whole answer.
func cutOff(t *testing.T) {
	l := listen(t)
	client, a := connect(t, l)
	b, server := connect(t, l)
	done := make(chan error, 1)
	go func() {
		_, err := Forward(a, b)
		a.Close()
		b.Close()
		done <- err
	}()
	begin(t, client, server)
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		for part := random(1000); ; {
			if _, err := client.Write(part); err != nil {
				return
			}
		}
	}()
	go func() {
		server.SetLinger(0)
		server.Write(random(3_000_000))
	}()
	if _, err := io.ReadFull(client, make([]byte, 100_000)); err != nil {
		t.Error(err)
	}
	server.Close()
	// The client's own write may have taken the error of the reset. Then there is no connection.
	if _, err := io.Copy(io.Discard, client); err == nil && newEnd(client).connected() {
		t.Error("the answer looks complete")
	}
	if err := <-done; err == nil {
		t.Error("no error")
	}
	client.Close()
	<-writer
}

func TestCutOff(t *testing.T) {
	for n := 0; n < 50 && !t.Failed(); n++ {
		cutOff(t)
	}
}

// The close of a connection ends Forward, and resets the other one.
func TestClose(t *testing.T) {
	l := listen(t)
	client, a := connect(t, l)
	b, server := connect(t, l)
	done := make(chan error, 1)
	go func() {
		_, err := Forward(a, b)
		done <- err
	}()
	begin(t, client, server)
	a.Close()
	b.Close()
	if err := <-done; err == nil {
		t.Error("no error")
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the client was not reset: %v", err)
	}
}

// What is no TCP connection is copied. net.Pipe has no half-close.
func TestNotTCP(t *testing.T) {
	l := listen(t)
	client, a := connect(t, l)
	b, server := net.Pipe()
	done := make(chan result, 1)
	go func() {
		report, err := Forward(a, b)
		done <- result{report, err}
	}()
	if _, err := client.Write([]byte("up")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Write([]byte("down")); err != nil {
		t.Fatal(err)
	}
	server.Close()
	client.CloseWrite()
	if got, err := io.ReadAll(client); string(got) != "down" || err != nil {
		t.Errorf("%q came down, %v", got, err)
	}
	r := <-done
	if r.report.AToB.Copied != 2 || r.report.BToA.Copied != 4 || r.report.AToB.Refused != ErrNotTCP {
		t.Errorf("%+v", r)
	}
}

func TestOptions(t *testing.T) {
	l := listen(t)
	a, _ := connect(t, l)
	b, _ := connect(t, l)
	for _, o := range []Options{{Max: -1}, {Idle: -1}} {
		if err := Splice(a, b, o); !errors.Is(err, unix.EINVAL) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if expected != BySplice.String() {
		return
	}
	client, a := connect(t, l)
	b, server := connect(t, l)
	if err := Splice(a, b, Options{Max: 3}); err != nil {
		t.Fatal(err)
	}
	client.Write([]byte("abcdef"))
	if _, err := io.ReadFull(server, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	var eof bool
	if err := newEnd(a).untilOver(&eof); !errors.Is(err, unix.EFBIG) {
		t.Errorf("%v, not EFBIG", err)
	}
	if moved, err := Moved(a); moved != 3 || err != nil {
		t.Errorf("%d bytes were moved, %v", moved, err)
	}
	if err := Unsplice(a); !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("no splice is left, %v", err)
	}
}
