// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package sosplice_test

import (
	"fmt"
	"io"
	"log"
	"net"

	"socksplice.example/sosplice"
)

// A proxy for one connection, with a client and a server around it.
func ExampleForward() {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		conn, err := server.Accept()
		if err != nil {
			log.Fatal(err)
		}
		defer conn.Close()
		request, _ := io.ReadAll(conn)
		fmt.Fprintf(conn, "%d bytes, thank you", len(request))
	}()

	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan sosplice.Report)
	go func() {
		a, err := proxy.Accept()
		if err != nil {
			log.Fatal(err)
		}
		defer a.Close()
		b, err := net.Dial("tcp", server.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		defer b.Close()
		report, err := sosplice.Forward(a, b)
		if err != nil {
			log.Print(err) // the closes above reset both connections
		}
		done <- report
	}()

	client, err := net.Dial("tcp", proxy.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(client, "hello")
	client.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(client)
	fmt.Printf("%s\n", answer)
	client.Close()
	report := <-done
	fmt.Println("up", report.AToB.Total(), "down", report.BToA.Total())
	// Output:
	// 5 bytes, thank you
	// up 5 down 18
}
