#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""cri.py SOCKET ACTION [ARGUMENT]...: asks a runtime by the Container Runtime Interface, as the
kubelet does, or is one.

    pod NAME [LABEL=VALUE]...       runs a pod in the namespace "shop"; prints its id
    start POD ID NAME MOUNTS COMMAND
                                    runs a container of the pod of this name and id, by a shell;
                                    prints its id. MOUNTS is HOST:CONTAINER[,HOST:CONTAINER]...
    stop CONTAINER, remove CONTAINER
    end POD                         ends a pod and its containers
    ready                           waits until the runtime answers
    serve                           is a runtime. Its containers are those of SOCKET.json, its
                                    answers as SOCKET.mode says: good, hang, refuse, or silent,
                                    which tells no events. SIGUSR1 sends one to each listener.

Messages are written field by field, so that no compiler of protocol buffers is needed."""

import json
import signal
import sys
import threading
import time
from concurrent import futures

import grpc

SERVICE = "runtime.v1.RuntimeService"
NODE = 2  # the namespaces of the machine
RUNNING, EXITED = 1, 2


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes((*out, n))


def field(number, value):
    """A number, a text, or a message that field() has made."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def mapping(number, values):
    return b"".join(field(number, field(1, k) + field(2, v)) for k, v in values.items())


def fields(message):
    """(number, value) of each field; values are numbers and bytes."""
    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = message[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n
    at = 0
    while at < len(message):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
        else:
            length = number()
            yield key >> 3, message[at:at + length]
            at += length


class Client:
    def __init__(self, socket):
        self.channel = grpc.insecure_channel(f"unix:{socket}")

    def ask(self, method, message=b""):
        """The first field of the answer."""
        call = self.channel.unary_unary(f"/{SERVICE}/{method}")
        answer = dict(fields(call(message, timeout=120)))
        return answer.get(1, b"")

    def ready(self):
        grpc.channel_ready_future(self.channel).result(120)
        end = time.monotonic() + 120
        while True:
            try:
                return self.ask("Version")
            except grpc.RpcError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def pod(self, name, *labels):
        labels = dict(label.split("=") for label in labels)
        print(self.ask("RunPodSandbox", field(1, self.config(name, labels))).decode())

    @staticmethod
    def config(name, labels):
        namespaces = field(1, field(1, NODE) + field(2, NODE) + field(3, NODE))
        return b"".join((
            field(1, field(1, name) + field(2, f"uid-{name}") + field(3, "shop")),
            mapping(6, labels),
            field(8, field(1, f"/kubepods/pod-{name}") + field(2, namespaces))))

    def start(self, pod, pod_id, name, mounts, command):
        mounts = (mount.split(":") for mount in mounts.split(","))
        namespaces = field(3, field(1, NODE) + field(2, NODE) + field(3, NODE))
        config = b"".join((
            field(1, field(1, name)),
            field(2, field(1, "localhost/empty:1")),
            *(field(3, word) for word in ("/bin/sh", "-c", command)),
            *(field(7, field(1, inside) + field(2, outside)) for outside, inside in mounts),
            field(15, field(2, namespaces))))
        sandbox = self.config(pod, {})
        container = self.ask("CreateContainer", field(1, pod_id) + field(2, config) + field(3, sandbox))
        self.ask("StartContainer", field(1, container))
        print(container.decode())

    def stop(self, container):
        self.ask("StopContainer", field(1, container))

    def remove(self, container):
        self.ask("RemoveContainer", field(1, container))

    def end(self, pod):
        self.ask("StopPodSandbox", field(1, pod))
        self.ask("RemovePodSandbox", field(1, pod))


class Runtime:
    def __init__(self, socket):
        self.socket = socket
        self.listeners = []

    def state(self):
        with open(self.socket + ".json", encoding="utf-8") as f:
            return json.load(f)

    def mode(self):
        with open(self.socket + ".mode", encoding="utf-8") as f:
            return f.read().strip()

    def containers(self, _request, context):
        mode = self.mode()
        if mode == "hang":
            time.sleep(60)
        if mode == "refuse":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service " + SERVICE)
        return b"".join(field(1, b"".join((
            field(1, c["id"]), field(2, c["pod"]), field(3, field(1, c["name"])),
            field(6, RUNNING if c["pid"] else EXITED)))) for c in self.state()["containers"])

    def sandboxes(self, _request, _context):
        return b"".join(field(1, b"".join((
            field(1, p["id"]), field(2, field(1, p["name"]) + field(3, p["namespace"])),
            mapping(5, p["labels"])))) for p in self.state()["pods"])

    def status(self, request, context):
        wanted = dict(fields(request))[1].decode()
        for c in self.state()["containers"]:
            if c["id"] == wanted:
                return mapping(2, {"info": json.dumps({"pid": c["pid"], "sandboxID": c["pod"]})})
        return context.abort(grpc.StatusCode.NOT_FOUND, "no such container")

    def events(self, _request, context):
        if self.mode() == "silent":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method GetContainerEvents")
        event = threading.Event()
        self.listeners.append(event)
        while True:
            event.wait()
            event.clear()
            yield field(1, "any")

    def tell(self, *_):
        for event in self.listeners:
            event.set()

    def serve(self):
        handlers = {
            "ListContainers": grpc.unary_unary_rpc_method_handler(self.containers),
            "ListPodSandbox": grpc.unary_unary_rpc_method_handler(self.sandboxes),
            "ContainerStatus": grpc.unary_unary_rpc_method_handler(self.status),
            "GetContainerEvents": grpc.unary_stream_rpc_method_handler(self.events),
        }
        server = grpc.server(futures.ThreadPoolExecutor(16))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        server.add_insecure_port(f"unix:{self.socket}")
        signal.signal(signal.SIGUSR1, self.tell)
        server.start()
        while True:
            signal.pause()


def main():
    socket, action, *arguments = sys.argv[1:]
    who = Runtime(socket) if action == "serve" else Client(socket)
    getattr(who, action)(*arguments)


main()
