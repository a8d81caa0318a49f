#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A TCP connection with random bytes, and a check of its capture.

stream.py talk ADDRESS PORT ROUNDS SIZE OUT
    Listens and connects to itself. In each round the client sends up to SIZE random bytes to
    the server, which sends as many back. In the round after the middle both send 1,000 bytes
    over TCP. The bytes of the client go to OUT.0, those of the server to OUT.1, and the number
    of bytes of each round to OUT.rounds. At the end it prints "holding" and keeps the
    connection until its standard input ends. For each line of input it sends SIZE bytes each
    way and prints "holding" again.
stream.py ring ADDRESS PORT ROUNDS SIZE OUT
    The same, but no bytes go over TCP.
stream.py look PCAP PORT OUT RING0 RING1
    Checks that PCAP has the ring bytes of both ends, RING0 and RING1 of them, in an order in
    which they can have been sent. Bytes that went over TCP come before them or are a gap.
"""
import os
import random
import socket
import struct
import sys


def receive(sock, count):
    parts = []
    while count:
        part = sock.recv(count)
        assert part, "end of stream"
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


# Sets a pacing rate. Paced bytes go over TCP.
def pace(sock, rate):
    sock.setsockopt(socket.SOL_SOCKET, 47, struct.pack("Q", rate))


def ring(address, port, rounds, size, out):
    talk(address, port, rounds, size, out, some_by_tcp=False)


# Reads once. Until an end has tried to read, its peer sends over TCP.
def try_to_read(sock):
    try:
        sock.recv(1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return
    raise AssertionError("a byte or the end before anything was sent")


def talk(address, port, rounds, size, out, some_by_tcp=True):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, int(port)), family=family)
    client = socket.create_connection((address, int(port)))
    server, _ = listener.accept()
    if not some_by_tcp:
        try_to_read(client)
        try_to_read(server)
    with open(out + ".0", "wb") as first, open(out + ".1", "wb") as second, \
            open(out + ".rounds", "w") as sizes:
        for i in range(int(rounds)):
            by_tcp = some_by_tcp and i == int(rounds) // 2
            data = os.urandom(1000 if by_tcp else random.randint(1, int(size)))
            for sender, reader, file in ((client, server, first), (server, client, second)):
                if by_tcp:
                    pace(sender, 1 << 40)
                sender.sendall(data)
                assert receive(reader, len(data)) == data
                if by_tcp:
                    pace(sender, (1 << 64) - 1)
                file.write(data)
            print(len(data), int(by_tcp), file=sizes)
    print("holding", flush=True)
    for _ in sys.stdin:
        data = os.urandom(int(size))
        for sender, reader in ((client, server), (server, client)):
            sender.sendall(data)
            assert receive(reader, len(data)) == data
        print("holding", flush=True)


def packets(path):
    """Times and packets of a classic pcap file of the "any" interface."""
    with open(path, "rb") as file:
        content = file.read()
    magic, _, _, _, _, _, link = struct.unpack("=IHHiIII", content[:24])
    assert magic == 0xa1b2c3d4 and link == 113, (hex(magic), link)
    at = 24
    while at < len(content):
        sec, usec, kept, length = struct.unpack("=IIII", content[at:at + 16])
        assert kept == length, "a packet is cut"
        yield sec + usec / 1e6, content[at + 32:at + 16 + kept]
        at += 16 + kept


def segment(packet):
    if packet[0] >> 4 == 4:
        tcp = packet[20:]
        length = struct.unpack("!H", packet[2:4])[0] - 20
    else:
        tcp = packet[40:]
        length = struct.unpack("!H", packet[4:6])[0]
    assert len(tcp) == length
    sport, dport, seq, ack = struct.unpack("!HHII", tcp[:12])
    return sport, dport, seq, ack, tcp[20:]


class Direction:
    def __init__(self, out, rounds):
        with open(out, "rb") as file:
            self.sent = file.read()
        # Where each part that went through the ring begins and ends. The first round went over
        # TCP, since its reader had not read yet. So did the paced round.
        self.ring = []
        at = 0
        for i, (size, by_tcp) in enumerate(rounds):
            if i and not by_tcp:
                self.ring.append((at, at + size))
            at += size
        self.base = None
        self.got = bytearray()
        self.places = []

    def add(self, seq, payload):
        if self.base is None:
            self.base = (seq - self.ring[0][0]) % (1 << 32)
        self.places.append(((seq - self.base) % (1 << 32), len(payload)))
        self.got += payload

    def end(self):
        place, length = self.places[-1]
        return (self.base + place + length) % (1 << 32)


def look(pcap, port, out, *ring):
    with open(out + ".rounds") as file:
        rounds = [tuple(map(int, line.split())) for line in file]
    directions = [Direction(out + ".0", rounds), Direction(out + ".1", rounds)]
    before = 0.0
    answered = 0
    for time, packet in packets(pcap):
        assert time >= before, "times go back"
        before = time
        sport, dport, seq, ack, payload = segment(packet)
        assert (sport == int(port)) != (dport == int(port)), (sport, dport)
        which = int(sport == int(port))
        if not payload:
            continue
        directions[which].add(seq, payload)
        if which:
            # The server sends as many bytes as it has read, and only after it has read them.
            assert ack == directions[0].end(), "an answer to something else"
            assert len(directions[1].got) <= len(directions[0].got), "an answer came first"
            answered += 1
        else:
            assert len(directions[1].got) == total(directions[0]), "a question came first"
    for direction, count in zip(directions, ring):
        assert len(direction.got) == int(count) > 0, (len(direction.got), count)
        assert len(direction.got) == sum(b - a for a, b in direction.ring)
        got = 0
        for place, length in direction.places:
            assert direction.sent[place:place + length] == direction.got[got:got + length], place
            got += length
        ends = [place + length for place, length in direction.places]
        starts = [place for place, _ in direction.places]
        gaps = sum(a != b for a, b in zip(starts[1:], ends))
        assert gaps == 1, f"{gaps} gaps"
    assert answered >= len(rounds) - 2
    print("the same,", " and ".join(str(len(d.got)) for d in directions), "bytes")


def total(direction):
    """Returns how many bytes DIRECTION had received when its present round began."""
    done = 0
    for begin, end in direction.ring:
        if done + end - begin > len(direction.got) - direction.places[-1][1]:
            return done
        done += end - begin
    return done


if __name__ == "__main__":
    {"talk": talk, "ring": ring, "look": look}[sys.argv[1]](*sys.argv[2:])
