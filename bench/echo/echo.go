// SPDX-License-Identifier: GPL-2.0

// echo PORT: a TCP server that answers each message of a connection with its bytes. It prints
// "listening PORT".
package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: echo PORT")
		os.Exit(2)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
	fmt.Println("listening", os.Args[1])
	for {
		conn, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "echo:", err)
			os.Exit(1)
		}
		go func() {
			defer conn.Close()
			// without splice(2), which would look for a second socket
			io.Copy(struct{ io.Writer }{conn}, struct{ io.Reader }{conn})
		}()
	}
}
