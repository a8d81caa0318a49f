# SPDX-License-Identifier: GPL-2.0
"""OpenSSL gives the kernel the keys of a connection with openssl s_client. SO_SPLICE then moves the
bytes between that and a plain connection, both ways, as getsockopt says. One line a case."""

import os
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time

SO_SPLICE = 0x5350
TCP_ULP = 31
OP_ENABLE_KTLS = 8
UP = bytes(i * 7 % 251 for i in range(300_000))
DOWN = bytes(i * 11 % 241 for i in range(500_000))


def check(good, *why):
    if not good:
        raise AssertionError(" ".join(map(str, why)))


def read_exactly(read, size):
    data = b""
    while len(data) < size:
        piece = read(size - len(data))
        check(piece, "the stream ended after", len(data), "bytes")
        data += piece
    return data


def splice(source, sink):
    source.setsockopt(socket.IPPROTO_IP, SO_SPLICE, struct.pack("@iqqq", sink.fileno(), 0, 0, 0))


def wait_moved(source, size):
    """The count follows the last byte."""
    end = time.monotonic() + 20
    while True:
        moved = struct.unpack("q", source.getsockopt(socket.IPPROTO_IP, SO_SPLICE, 8))[0]
        if moved == size:
            return
        check(moved < size and time.monotonic() < end, "moved", moved, "bytes, not", size)
        time.sleep(0.01)


def write_all(stream, data):
    stream.write(data)
    stream.flush()


def context(folder):
    cert, key = f"{folder}/cert", f"{folder}/key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", key, "-out", cert], check=True, stderr=subprocess.DEVNULL)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(cert, key)
    # of TLS 1.3 OpenSSL 3.0 gives the kernel one direction only
    made.minimum_version = made.maximum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    made.options |= OP_ENABLE_KTLS
    return made


def relay(folder):
    front = socket.create_server(("127.0.0.1", 0))
    back = socket.create_server(("127.0.0.1", 0))
    client = subprocess.Popen(
        ["openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{front.getsockname()[1]}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        tls = context(folder).wrap_socket(front.accept()[0], server_side=True)
        if not tls.getsockopt(socket.IPPROTO_TCP, TCP_ULP, 16).startswith(b"tls"):
            return "this OpenSSL does not use kTLS"
        target = socket.create_connection(back.getsockname())
        server = back.accept()[0]
        splice(tls, target)
        splice(target, tls)
        writers = [threading.Thread(target=write_all, args=(client.stdin, UP)),
                   threading.Thread(target=server.sendall, args=(DOWN,))]
        for writer in writers:
            writer.start()
        check(read_exactly(server.recv, len(UP)) == UP, "other bytes to the server")
        check(read_exactly(lambda n: os.read(client.stdout.fileno(), n), len(DOWN)) == DOWN,
              "other bytes to the client")
        for writer in writers:
            writer.join()
        wait_moved(tls, len(UP))
        wait_moved(target, len(DOWN))
        return None
    finally:
        client.kill()
        client.wait()


def main():
    name = "relay-ends-TLS"
    with tempfile.TemporaryDirectory() as folder:
        try:
            skipped = relay(folder)
        except (AssertionError, OSError) as failure:
            print(f"not ok {name}: {failure}")
            return 1
    print(f"skip {name}: {skipped}" if skipped else f"ok {name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
