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
	"net"
	"os"
	"syscall"
	"time"

	"socksplice.example/sosplice"
)

func words(t sosplice.Traffic) string {
	if t.Refused != nil {
		fmt.Fprintf(os.Stderr, "relay: %v: copying\n", t.Refused)
	}
	return fmt.Sprintf("%d spliced %d copied", t.Spliced, t.Copied)
}

func serve(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		return
	}
	defer server.Close()
	// After an error the closes reset both connections.
	report, err := sosplice.Forward(client, server)
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		return
	}
	fmt.Println("up", words(report.AToB), "down", words(report.BToA))
}

// isShortage tells whether an accept failed because something is short, which may pass.
func isShortage(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
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
		if isShortage(err) {
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
		go serve(c, os.Args[2])
	}
}
