// SPDX-License-Identifier: GPL-2.0

// gorelay [-copy] -listen ADDRESS -to ADDRESS: a TCP relay as people write it:
// io.Copy between two TCP connections, and the half-close passed on. io.Copy
// uses splice(2) here; with -copy it reads and writes instead.
//
// Prints "listening ADDRESS", then a line for each direction that ended,
// "up BYTES ERROR" or "down BYTES ERROR".
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
)

var byCopy = flag.Bool("copy", false, "read(2) and write(2) instead of splice(2)")

func pass(name string, to, from *net.TCPConn, done chan<- struct{}) {
	var n int64
	var err error

	if *byCopy {
		// io.Copy sees neither end's own ways of copying
		buf := make([]byte, 128*1024)
		n, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, buf)
	} else {
		n, err = io.Copy(to, from)
	}
	to.CloseWrite()
	fmt.Println(name, n, err)
	done <- struct{}{}
}

func serve(client *net.TCPConn, address string) {
	defer client.Close()
	c, err := net.Dial("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gorelay:", err)
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	done := make(chan struct{})
	go pass("up", server, client, done)
	go pass("down", client, server, done)
	<-done
	<-done
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to accept connections")
	to := flag.String("to", "", "where to relay them to")
	flag.Parse()

	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gorelay:", err)
		os.Exit(1)
	}
	fmt.Println("listening", l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "gorelay:", err)
			os.Exit(1)
		}
		go serve(c.(*net.TCPConn), *to)
	}
}
