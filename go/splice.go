// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package sosplice

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// As in socksplice.h(3).
const (
	level    = unix.IPPROTO_IP
	soSplice = 0x5350
)

// Options are the limits of a splice. It also ends with the source's stream, and with an error.
type Options struct {
	// Max is the number of bytes after which the splice ends. The source's next read then
	// fails with EFBIG. 0 means no limit.
	Max int64
	// Idle is the time without a moved byte after which the splice ends. The source's next
	// read then fails with ETIMEDOUT. 0 means no limit; the kernel counts in microseconds.
	Idle time.Duration
}

// argument is struct splice.
type argument struct {
	fd   int32
	max  int64
	idle unix.Timeval
}

// Splice has the kernel forward to sink what source receives. Bytes that source has received and
// nobody has read go first. so_splice(4) lists the errors; [Unavailable] tells after which of them
// a program should copy. Both sockets are then unchanged.
//
// A splice belongs to the source's socket in the kernel. It does not end with any value of the
// program, and does not pass on the end of the stream.
func Splice(source, sink syscall.Conn, o Options) error {
	if o.Max < 0 || o.Idle < 0 {
		return unix.EINVAL
	}
	// Never round up to no limit.
	idle := unix.NsecToTimeval((o.Idle + time.Microsecond - 1).Truncate(time.Microsecond).Nanoseconds())
	return control(sink, func(to int) error {
		return control(source, func(from int) error {
			a := argument{int32(to), o.Max, idle}
			bytes := unsafe.Slice((*byte)(unsafe.Pointer(&a)), unsafe.Sizeof(a))
			return unix.SetsockoptString(from, level, soSplice, string(bytes))
		})
	})
}

// Unsplice ends the splice of source. Bytes that were not sent can then be read from source. It
// returns ENOTCONN if there is no splice.
func Unsplice(source syscall.Conn) error {
	return control(source, func(fd int) error {
		return unix.SetsockoptInt(fd, level, soSplice, -1)
	})
}

// Moved returns the bytes that the splice of source has moved so far, or that the last one moved.
// It returns 0 if an administrator's socksplice drain has discarded the count.
//
// [Forward] counts by it. If no bytes follow a drain before the stream ends or fails, a discarded
// count looks like that of a splice that has moved nothing. [Traffic].Total may then be too low
// although Inexact is false.
func Moved(source syscall.Conn) (moved int64, err error) {
	err = control(source, func(fd int) error {
		n, err := unix.GetsockoptUint64(fd, level, soSplice)
		moved = int64(n)
		return err
	})
	return moved, err
}

// Unavailable tells whether a program should copy after [Splice] has returned err. The copy then
// works, or its own error tells what is wrong. ENOTCONN is among these errors: the connection has
// ended, but what the source received before can still be read. So is EPROTONOSUPPORT: one of the
// two is MPTCP, as what a listener accepts may be in a module of go 1.24 or later.
func Unavailable(err error) bool {
	return is(err, unix.ENOPROTOOPT, unix.EPERM, unix.EINVAL, unix.EPROTONOSUPPORT, unix.ENOMEM,
		unix.ENOTCONN, unix.EACCES, unix.EOPNOTSUPP, unix.EINTR)
}

// control runs call with the descriptor of c, which stays open meanwhile.
func control(c syscall.Conn, call func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil {
		return err
	}
	return failed
}

func is(err error, these ...unix.Errno) bool {
	for _, e := range these {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
