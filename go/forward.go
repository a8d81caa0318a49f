// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

// Package sosplice forwards between two connections in the kernel, by the option SO_SPLICE of the
// kernel module socksplice. The administrator first has to enter
//
//	socksplice feature set so-splice on
//
// Where the kernel does not offer it, [Forward] copies as [io.Copy] does, which on Linux uses
// splice(2).
package sosplice

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Way is a way by which bytes go.
type Way int

const (
	// BySplice means that the kernel forwards, by SO_SPLICE.
	BySplice Way = iota
	// ByCopy means that this program forwards, by io.Copy.
	ByCopy
)

func (w Way) String() string {
	if w == BySplice {
		return "SO_SPLICE"
	}
	return "io.Copy"
}

// Traffic is what went in one direction. Each byte is counted once.
type Traffic struct {
	// Way is the way that was taken last.
	Way Way
	// Spliced is the number of bytes by SO_SPLICE, as the kernel has counted them.
	Spliced int64
	// Copied is the number of bytes by io.Copy.
	Copied int64
	// Refused is why the kernel did not splice: an error of so_splice(4), ErrNotTCP, or nil.
	Refused error
	// Inexact is true if an administrator has ended the splice (socksplice drain) and the
	// kernel has discarded its count. Spliced is then too low.
	Inexact bool
}

// Total returns the bytes of both ways.
func (t Traffic) Total() int64 {
	return t.Spliced + t.Copied
}

// Report is what went in both directions.
type Report struct {
	AToB, BToA Traffic
}

// ErrNotTCP says that a connection is no *net.TCPConn. Other types may change the bytes, as TLS
// does, so they are copied.
var ErrNotTCP = errors.New("a connection is not a *net.TCPConn")

// Error says which connection failed. It wraps the connection's error; ELOOP means that the bytes
// would come back to their source.
type Error struct {
	// Conn is the connection that failed: one of the arguments of [Forward].
	Conn net.Conn
	Err  error
}

func (e *Error) Error() string {
	return fmt.Sprintf("%v: %v", e.Conn.RemoteAddr(), e.Err)
}

// Unwrap returns the error of the connection.
func (e *Error) Unwrap() error {
	return e.Err
}

// lastBytes is the time that bytes received from one side have to reach the other one after the
// first one failed.
const lastBytes = time.Second

// Forward forwards between a and b, both ways, until both streams have ended. When one stream ends
// it closes the other connection for writing (a half-close), if that has CloseWrite, and goes on in
// the other direction. It returns what went each way, and how, also with an error. Like [io.Copy] it closes neither
// connection.
//
// From its start on, closing a *net.TCPConn resets its connection (SetLinger(0)). A success undoes
// that. So after an error, which is an [*Error], close both connections: their peers must not take
// a stream that was cut off for a complete one. To end it, close both connections, or set a
// deadline that is over: it returns the error of that.
//
// No other code may read from or write to the connections meanwhile. After an error they have no
// deadlines.
func Forward(a, b net.Conn) (Report, error) {
	f := forwarder{ends: [2]end{newEnd(a), newEnd(b)}}
	f.lingers()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.pass(0)
	}()
	f.pass(1)
	<-done
	report := Report{AToB: f.traffic[0], BToA: f.traffic[1]}
	if f.failure == nil {
		for i := range f.ends {
			f.ends[i].restoreLinger()
		}
		return report, nil
	}
	for start := time.Now(); f.unsent() && time.Since(start) < lastBytes; {
		time.Sleep(time.Millisecond)
	}
	for i := range f.ends {
		f.ends[i].SetDeadline(time.Time{})
	}
	return report, f.failure
}

type forwarder struct {
	ends    [2]end
	traffic [2]Traffic // each written by its own direction alone
	mu      sync.Mutex
	done    [2]bool // under mu
	copying [2]bool // under mu: direction i calls io.Copy, so nothing notices a reset of its sink
	failure *Error  // under mu
	failed  int     // under mu: the index of its connection
}

// fail records a failure. The first one counts, but a sink that is gone only says EPIPE: the other
// direction, which reads from there, may find out why. The caller holds mu.
func (f *forwarder) fail(side int, err error) {
	if f.failure == nil || f.failed == side && is(f.failure.Err, unix.EPIPE) {
		f.failed = side
		f.failure = &Error{f.ends[side].Conn, err}
	}
}

// end records that direction i is over, and the error that ended it, in one step: the other
// direction must not take a stream that was cut off for a complete one. It returns that error, and
// whether the stream has ended as its sender wanted.
func (f *forwarder) end(i int, err error) (failed int, _ error, complete bool) {
	source, sink := f.ends[i], f.ends[1-i]
	failed = i
	// A failed copy may have failed at either end.
	if err != nil && (!sink.connected() || is(err, unix.EPIPE) && source.connected()) {
		failed = 1 - i
	}
	// The other direction, at its own end, shuts this source after it has set done.
	gone := !source.connected()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done[i] = true
	if err == nil && gone && !f.done[1-i] {
		// After a reset of the source, a write of the other direction may have taken the
		// error. A read then only finds an end of stream.
		err = unix.ECONNRESET
	}
	complete = err == nil && f.failure == nil
	if err != nil {
		f.fail(failed, err)
	}
	return failed, err, complete
}

// passEnd closes the sink of direction i for writing.
func (f *forwarder) passEnd(i int) error {
	err := f.ends[1-i].closeWrite()
	f.mu.Lock()
	defer f.mu.Unlock()
	if is(err, unix.ENOTCONN) {
		// The other direction, if it goes on, reads from this end and finds the error.
		err = nil
		if f.done[1-i] {
			err = unix.ECONNRESET
		}
	}
	if err != nil {
		f.fail(1-i, err)
	}
	return err
}

// awaitReset waits, after the end of the stream of ends[i], until the other direction is over too or
// the connection of ends[i] was reset, and then returns the error. Nothing reads from that end any
// more, so a copy finds a reset only when it has bytes to write. The kernel notices it for a splice.
func (f *forwarder) awaitReset(i int) error {
	if f.ends[i].tcp == nil {
		return nil
	}
	raw, err := f.ends[i].tcp.SyscallConn()
	if err != nil {
		return nil
	}
	// Each change of the connection wakes this, also the shutdown at the end of the other direction.
	raw.Read(func(fd uintptr) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.done[1-i] {
			return true
		}
		if _, e := unix.Getpeername(int(fd)); e == nil {
			return false
		}
		if f.copying[1-i] {
			err = unix.ECONNRESET
			f.fail(i, err)
		}
		return true
	})
	return err
}

// beginCopy records that direction i copies from now on. It returns an error if awaitReset of the
// other one has left a reset to the kernel's splice before.
func (f *forwarder) beginCopy(i int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.copying[i] = true
	if f.done[1-i] && !f.ends[1-i].connected() {
		return unix.ECONNRESET
	}
	return nil
}

// pass forwards in one direction, from ends[i] to the other end.
func (f *forwarder) pass(i int) {
	source, sink := f.ends[i], f.ends[1-i]
	failed, err, complete := f.end(i, f.carry(i))
	if complete {
		failed, err = 1-i, f.passEnd(i)
		if err == nil {
			failed, err = i, f.awaitReset(i)
		}
	}
	if err == nil {
		return
	}
	// A server may answer and close before it has read everything. What it has sent can still be
	// read, and must arrive: the other direction then ends by itself.
	if failed != i && !sink.connected() && source.connected() {
		return
	}
	for _, e := range f.ends {
		if e.tcp != nil {
			Unsplice(e.tcp)
		}
		e.SetDeadline(time.Unix(1, 0))
	}
}

// carry moves bytes until the stream of ends[i] has ended.
func (f *forwarder) carry(i int) error {
	t, source, sink := &f.traffic[i], f.ends[i], f.ends[1-i]
	if source.tcp == nil || sink.tcp == nil {
		t.Refused = ErrNotTCP
	} else if err := Splice(source.tcp, sink.tcp, Options{}); err == nil {
		eof, err := f.await(t, source)
		sinkFailed := is(err, unix.EPIPE) && !sink.connected()
		if err != nil && !is(err, unix.ELOOP) && !sinkFailed && !source.connected() {
			// The source has failed. EPIPE is its own if it was reset after the end of its
			// stream. What it had received before can still be read.
			t.Copied, _ = io.Copy(sink.Conn, source.Conn)
			return err
		}
		if err != nil || eof {
			return err
		}
	} else if Unavailable(err) {
		t.Refused = err
	} else {
		return err
	}
	t.Way = ByCopy
	if err := f.beginCopy(i); err != nil {
		return err
	}
	n, err := io.Copy(sink.Conn, source.Conn)
	t.Copied = n
	return err
}

// await waits for the end of the splice of source, and counts its bytes. It returns true at the end
// of the stream, and false if source has bytes that the splice has not moved.
func (f *forwarder) await(t *Traffic, source end) (eof bool, err error) {
	err = source.untilOver(&eof)
	// The error may be the connection's own, and the splice may not have ended yet. End it, so
	// that its count is final and the remaining bytes can be read.
	Unsplice(source.tcp)
	moved, e := Moved(source.tcp)
	t.Spliced = moved
	// After a drain the kernel knows no count any more, and returns 0.
	t.Inexact = e != nil && !errors.Is(e, net.ErrClosed) || err == nil && !eof && moved == 0
	return eof, err
}

// unsent tells whether closing a connection now would discard bytes that its peer has not
// acknowledged.
func (f *forwarder) unsent() bool {
	for _, e := range f.ends {
		if e.tcp == nil || !e.connected() {
			continue
		}
		n := 0
		control(e.tcp, func(fd int) (err error) {
			n, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
			return err
		})
		if n > 0 {
			return true
		}
	}
	return false
}

func (f *forwarder) lingers() {
	for i := range f.ends {
		e := &f.ends[i]
		if e.tcp == nil {
			continue
		}
		e.hasLinger = control(e.tcp, func(fd int) (err error) {
			e.linger, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_LINGER)
			return err
		}) == nil
		e.tcp.SetLinger(0)
	}
}

// end is one of the two connections.
type end struct {
	net.Conn
	tcp       *net.TCPConn // nil if it is another type
	linger    uint64       // struct linger as it was before
	hasLinger bool
}

func newEnd(c net.Conn) end {
	tcp, _ := c.(*net.TCPConn)
	return end{Conn: c, tcp: tcp}
}

func (e end) restoreLinger() {
	if e.hasLinger {
		control(e.tcp, func(fd int) error {
			return unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_LINGER, e.linger)
		})
	}
}

// connected tells whether the connection is there: until a reset, or until both streams have ended.
// Of other types than TCP only their own calls know.
func (e end) connected() bool {
	return e.tcp == nil || control(e.tcp, func(fd int) error {
		_, err := unix.Getpeername(fd)
		return err
	}) == nil
}

// closeWrite passes on the end of a stream. A type that has no half-close learns of it when the
// caller closes it: to close it here would cut off the other direction.
func (e end) closeWrite() error {
	if half, ok := e.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// untilOver waits until a splice has ended. It returns the error that has ended it.
func (e end) untilOver(eof *bool) error {
	raw, err := e.tcp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		over := false
		over, *eof, failed = look(int(fd))
		return over
	})
	if err != nil {
		return err
	}
	return failed
}

// looks is the number of looks at an error that poll(2) shows and SO_ERROR does not. The kernel
// hides a source's error for the time of one send on that socket, and reports no event after that.
const looks = 20

// look tells whether the splice of fd has ended, and how.
func look(fd int) (over, eof bool, err error) {
	for i := 0; ; i++ {
		if err := takeError(fd); err != nil {
			return true, false, err
		}
		var one [1]byte
		n, _, peeked := unix.Recvfrom(fd, one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		// The splice may have ended after the first look for its error. The kernel sets the
		// error at the moment from which reads return bytes again, so look again.
		if err := takeError(fd); err != nil {
			return true, false, err
		}
		if i == looks || !hasError(fd) {
			if is(peeked, unix.EAGAIN, unix.EINTR) {
				return false, false, nil
			}
			return true, peeked == nil && n == 0, peeked
		}
		time.Sleep(time.Millisecond)
	}
}

func takeError(fd int) error {
	number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && number != 0 {
		err = syscall.Errno(number)
	}
	return err
}

func hasError(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0 && fds[0].Revents&unix.POLLERR != 0
}
