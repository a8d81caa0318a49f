// SPDX-License-Identifier: MIT OR Apache-2.0

// relay LISTEN TO: forwards each connection made to LISTEN to TO, by SO_SPLICE where
// the kernel offers it, else by copying. Prints "listening ADDRESS", then for each
// connection what went "up" to the server and "down" to the client: bytes spliced,
// bytes copied. An end of stream is passed on as such (a half-close), a stream cut off as
// a reset.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// As in socksplice.h(3).
const (
	splLevel = unix.IPPROTO_IP
	soSplice = 0x5350
)

// splice is struct splice.
type splice struct {
	fd   int32
	max  int64
	idle unix.Timeval
}

// Splice has the kernel forward to sink what source receives, until max bytes have gone
// or nothing has for the time idle (0: no limit). See so_splice(4) for the errors.
func Splice(source, sink *net.TCPConn, max int64, idle time.Duration) error {
	from, err := source.SyscallConn()
	if err != nil {
		return err
	}
	to, err := sink.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = from.Control(func(fromFd uintptr) {
		err := to.Control(func(toFd uintptr) {
			s := splice{int32(toFd), max, unix.NsecToTimeval(idle.Nanoseconds())}
			bytes := unsafe.Slice((*byte)(unsafe.Pointer(&s)), unsafe.Sizeof(s))
			failed = unix.SetsockoptString(int(fromFd), splLevel, soSplice, string(bytes))
		})
		if err != nil {
			failed = err
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// Moved gives the bytes that the splice of source has moved, or the last one did.
func Moved(source *net.TCPConn) (moved uint64, err error) {
	c, err := source.SyscallConn()
	if err != nil {
		return 0, err
	}
	if e := c.Control(func(fd uintptr) {
		moved, err = unix.GetsockoptUint64(int(fd), splLevel, soSplice)
	}); e != nil {
		return 0, e
	}
	return moved, err
}

// is tells whether err is one of these.
func is(err error, these ...unix.Errno) bool {
	for _, e := range these {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// unavailable tells whether an error of Splice only means that one has to copy: see
// so_splice(4). ENOTCONN: the connection has ended, but what the source received before
// can still be read, such as the answer of a server that has closed. EPROTONOSUPPORT: one
// of the two is MPTCP, as what a listener accepts may be in a module of go 1.24 or later.
func unavailable(err error) bool {
	return is(err, unix.ENOPROTOOPT, unix.EPERM, unix.EINVAL, unix.EPROTONOSUPPORT,
		unix.ENOMEM, unix.ENOTCONN)
}

func connected(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	e := raw.Control(func(fd uintptr) { _, err = unix.Getpeername(int(fd)) })
	return e == nil && err == nil
}

func forward(source, sink *net.TCPConn) (text string, err error) {
	var moved uint64

	spliced := Splice(source, sink, 0, 0)
	if spliced != nil && !unavailable(spliced) {
		return "", spliced
	} else if spliced != nil {
		fmt.Fprintf(os.Stderr, "relay: %v: copying\n", spliced)
	}
	// While it is spliced nothing can be read: this waits for the splice to end, and
	// carries what that left.
	copied, err := io.Copy(sink, source)
	if err != nil {
		return "", err
	}
	if spliced == nil {
		if moved, err = Moved(source); err != nil {
			return "", err
		}
	}
	// No end of stream is sent on by a splice. If the source is not even connected any
	// more it may have been reset, an error that the other direction's write has had: the
	// close, which comes at once then, knows.
	if connected(source) {
		err = sink.CloseWrite()
	}
	return fmt.Sprintf("%d spliced %d copied", moved, copied), err
}

func serve(client *net.TCPConn, to string) {
	defer client.Close()
	// A close is a reset until all has gone well, and should this process be killed: nobody
	// is to take a stream that was cut off for a whole one.
	client.SetLinger(0)
	c, err := net.Dial("tcp", to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	server.SetLinger(0)
	pass := func(source, sink *net.TCPConn) string {
		text, err := forward(source, sink)
		if err != nil {
			// Nothing more will come of the other direction either. It finds them
			// closed, and then they are.
			source.Close()
			sink.Close()
			return fmt.Sprintf("failed: %v", err)
		}
		return text
	}
	up := make(chan string)
	go func() { up <- pass(client, server) }()
	down := pass(server, client)
	fmt.Println("up", <-up, "down", down)
	// too late for those that were closed because something failed
	client.SetLinger(-1)
	server.SetLinger(-1)
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: relay LISTEN-ADDRESS TO-ADDRESS")
		os.Exit(2)
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
	fmt.Println("listening", l.Addr())
	said := false
	for {
		c, err := l.Accept() // goes on by itself after ECONNABORTED
		if is(err, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM) {
			// there may be some again soon: no reason to end the connections that there are
			if !said {
				fmt.Fprintf(os.Stderr, "relay: %v: waiting\n", err)
			}
			said = true
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "relay:", err)
			os.Exit(1)
		}
		go serve(c.(*net.TCPConn), os.Args[2])
	}
}
