#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Bytes by SO_SPLICE, and a splice(2) on a socket in a sockmap.

splices.py BYTES
    Splices one TCP connection into another, sends BYTES in and reads them at the other
    end. Then puts an end of a third one into a sockmap, with a program that lets all
    pass, and asks for the 1000 bytes that it gets by splice(2). Prints "holding GOT", how many came so, and keeps all that
    until its standard input ends.
"""
import ctypes
import os
import socket
import struct
import sys

LEVEL, SO_SPLICE = socket.IPPROTO_IP, 0x5350	# of socksplice.h(3)
# linux/bpf.h
SYS_BPF = {"x86_64": 321, "aarch64": 280}[os.uname().machine]
MAP_CREATE, MAP_UPDATE, PROG_LOAD, PROG_ATTACH = 0, 2, 5, 8
SOCKMAP, SK_SKB, SK_SKB_VERDICT, SK_PASS = 15, 14, 38, 1


def connection(listener):
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    return client, server


def receive(sock, count):
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        assert part, "end of stream"
        data += part
    return data


def bpf(command, attributes):
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes, 128)
    ret = libc.syscall(SYS_BPF, command, buffer, 128)
    if ret < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return ret


def into_sockmap(sock):
    sockmap = bpf(MAP_CREATE, struct.pack("=5I", SOCKMAP, 4, 4, 1, 0))
    # r0 = SK_PASS; exit
    code = ctypes.create_string_buffer(struct.pack("=BBhiBBhi", 0xb7, 0, 0, SK_PASS, 0x95, 0, 0, 0))
    license = ctypes.create_string_buffer(b"GPL")
    program = bpf(PROG_LOAD, struct.pack("=IIQQ", SK_SKB, 2, ctypes.addressof(code), ctypes.addressof(license)))
    bpf(PROG_ATTACH, struct.pack("=IIII", sockmap, program, SK_SKB_VERDICT, 0))
    os.close(program)
    key, value = ctypes.c_uint32(0), ctypes.c_uint32(sock.fileno())
    bpf(MAP_UPDATE, struct.pack("=IxxxxQQQ", sockmap, ctypes.addressof(key), ctypes.addressof(value), 0))
    return sockmap


def main(count):
    listener = socket.create_server(("127.0.0.1", 0))
    first, source = connection(listener)
    sink, last = connection(listener)
    source.setsockopt(LEVEL, SO_SPLICE, struct.pack("@iqll", sink.fileno(), 0, 0, 0))
    data = os.urandom(count)
    first.sendall(data)
    assert receive(last, count) == data

    writer, reader = connection(listener)
    sockmap = into_sockmap(reader)
    writer.sendall(bytes(1000))
    out, into = os.pipe()
    got = os.splice(reader.fileno(), into, 1000)
    assert os.read(out, 1000) == bytes(got)
    print("holding", got, flush=True)
    sys.stdin.read()
    os.close(sockmap)


if __name__ == "__main__":
    main(int(sys.argv[1]))
