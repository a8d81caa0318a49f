#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""engine.py SOCKET: an engine that serves what the agent asks of Docker's API.
The containers are those of SOCKET.json, as `docker inspect` has them. PUT /tell sends an
event to each listener. GET /mode/hang and /mode/garbage make the list late or wrong,
/mode/stuck-ID what is said of one container late, and /mode/good makes all right.
"""
import http.server
import json
import os
import socketserver
import sys
import threading
import time

path = sys.argv[1]
listeners = []
lock = threading.Lock()
mode = "good"


def containers():
    with open(path + ".json") as file:
        return json.load(file)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "somebody"

    def log_message(self, *args):
        pass

    def answer(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def events(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        event = threading.Event()
        with lock:
            listeners.append(event)
        while event.wait():
            event.clear()
            line = b'{"Type":"container","Action":"start"}\n'
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()

    def do_PUT(self):
        with lock:
            for event in listeners:
                event.set()
            self.answer(len(listeners))

    def do_GET(self):
        global mode
        if self.path.startswith("/events"):
            self.events()
        elif self.path.startswith("/mode/"):
            mode = self.path.split("/")[2]
            self.answer(mode)
        elif self.path.startswith("/containers/json"):
            if mode == "hang":
                time.sleep(60)
            if mode == "garbage":
                self.answer("nonsense")
                return
            self.answer([
                {**c, "State": "running" if c["Pid"] else "exited"} for c in containers()
            ])
        else:
            wanted = self.path.split("/")[2]
            if mode == "stuck-" + wanted:
                time.sleep(60)
            found = [c for c in containers() if c["Id"] == wanted]
            if found:
                self.answer({"Id": wanted, "State": {"Pid": found[0]["Pid"]}})
            else:
                self.answer({"message": "no such container"}, 404)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # a listener that has gone


if os.path.exists(path):
    os.unlink(path)
Server(path, Handler).serve_forever()
