#!/usr/bin/python3
# tests/topo/memory.py CASE: a server in a memory cgroup, its clients outside; see memory.test.
# The two tell each other when a step is done. After a failure the last line says what failed
# first, and the status is 1.
import mmap
import os
import signal
import socket
import subprocess
import sys
import time

MIB = 1 << 20
PAGE = mmap.PAGESIZE
PARAMETERS = '/sys/module/socksplice/parameters/'
SO_SPLICE = 0x1023


class Failure(Exception):
    pass


def check(condition, what):
    if not condition:
        raise Failure(what)


def counter(name):
    return int(subprocess.run(['build/topo/load', 'stat', name], check=True, stdout=subprocess.PIPE).stdout)


def parameter(name, value):
    with open(PARAMETERS + name, 'w') as f:
        f.write(str(value))


def pattern(i, n):
    return (b'%08d' % i) * (n // 8 + 1)


class Group:
    made = []

    def __init__(self, name, **limits):
        self.made.append(self)
        # Never that of a case before, which may be under pressure for a second, or have limits.
        self.path = '/sys/fs/cgroup/%s.%d' % (name, os.getpid())
        with open('/sys/fs/cgroup/cgroup.subtree_control', 'w') as f:
            f.write('+memory')
        os.makedirs(self.path)
        for key, value in limits.items():
            self.write('memory.' + key, value)

    def write(self, file, value):
        with open(self.path + '/' + file, 'w') as f:
            f.write(str(value))

    def read(self, file):
        with open(self.path + '/' + file) as f:
            return f.read()

    def current(self):
        return int(self.read('memory.current'))

    def keyed(self, file, key):
        return int(dict(line.split() for line in self.read(file).splitlines())[key])

    def events(self, key):
        return self.keyed('memory.events', key)


# A process in @group that runs @body(link). Both ends say and hear lines.
class Link:
    processes = set()

    def __init__(self, group, body):
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in here, there:
            end.settimeout(120)
        self.pid = os.fork()
        if not self.pid:
            here.close()
            self.end = there
            group.write('cgroup.procs', 0)
            try:
                body(self)
            except BaseException as e:
                print('in the cgroup:', repr(e), flush=True)
                os._exit(1)
            os._exit(0)
        self.processes.add(self.pid)
        there.close()
        self.end = here

    def say(self, word='go'):
        self.end.send(str(word).encode())

    def hear(self):
        word = self.end.recv(1000).decode()
        check(word, 'the other side died')
        return word

    def ends_well(self):
        self.processes.remove(self.pid)
        status = os.waitpid(self.pid, 0)[1]
        check(status == 0, 'the server ended by signal %d' % (status & 127))


def accept(link, n):
    listener = socket.create_server(('127.0.0.1', 0), backlog=4096)
    link.say(listener.getsockname()[1])
    return [listener.accept()[0] for _ in range(n)]


def connect(link, n):
    port = int(link.hear())
    return [socket.create_connection(('127.0.0.1', port)) for _ in range(n)]


def read_all(s, n):
    data = b''
    while len(data) < n:
        part = s.recv(n - len(data))
        check(part, 'a connection ended')
        data += part
    return data


# Each asks and is answered once, so that both ends have read by recv and use their rings.
def answer_all(sockets):
    for s in sockets:
        check(read_all(s, 3) == b'ask', 'a question is wrong')
        s.sendall(b'answer')


def ask_all(sockets):
    for s in sockets:
        s.sendall(b'ask')
    for s in sockets:
        check(read_all(s, 6) == b'answer', 'an answer is wrong')


# Memory of the process's own, every page of it touched.
def take_memory(size):
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for i in range(0, size, PAGE):
        memory[i] = 1
    return memory


# Many clients were answered once; then the server needs memory of its own.
def idle_under_max():
    clients, group = 400, Group('memory_idle', max=40 * MIB)

    def serve(link):
        sockets = accept(link, clients)
        for _ in range(3):
            answer_all(sockets)
        link.say('answered')
        link.hear()
        take_memory(26 * MIB)
        link.say('done')

    link = Link(group, serve)
    sockets = connect(link, clients)
    for _ in range(3):
        ask_all(sockets)
    link.hear()
    held = counter('ring_memory_bytes')
    print('remark: %d pairs that sent small messages hold %d bytes each' % (clients, held // clients))
    check(held >= clients * PAGE, 'the rings are not used')
    link.say()
    link.hear()
    link.ends_well()
    check(group.events('oom_kill') == 0, 'somebody was killed')
    check(held <= 2 * clients * 2 * PAGE, 'more than two pages in a direction')


def idle_under_high():
    clients, group = 400, Group('memory_high', high=16 * MIB)

    def serve(link):
        sockets = accept(link, clients)
        for _ in range(6):
            answer_all(sockets)
        link.hear()

    before = counter('ring_bytes')
    link = Link(group, serve)
    sockets = connect(link, clients)
    for _ in range(6):
        ask_all(sockets)
    ring = counter('ring_bytes') - before
    link.say()
    link.ends_well()
    check(group.events('high') < 50, 'throttled %d times' % group.events('high'))
    check(ring > 4 * clients * 9, 'the rings are not used')


BULK, RINGS, RING_SIZE = 800000, 12, 1 << 20


def bulk(i):
    return pattern(i, BULK)[:BULK]


def read_bulk(sockets):
    for i, s in enumerate(sockets):
        check(read_all(s, BULK) == bulk(i), 'bytes differ')


def send_bulk(sockets):
    for i, s in enumerate(sockets):
        s.sendall(bulk(i))


# A ring loses its pages without pressure, too, a second or two after its last byte. So each of
# these gets a byte again whenever the next one is filled, however slow the machine is.
def fill(link, sockets):
    for i, s in enumerate(sockets):
        s.sendall(bulk(i))
        for other in sockets[:i]:
            other.sendall(b'.')
        link.hear()


def read_filled(link, sockets):
    for i, s in enumerate(sockets):
        check(read_all(s, BULK) == bulk(i), 'bytes differ')
        for other in sockets[:i]:
            check(read_all(other, 1) == b'.', 'another byte')
        link.say('read')


# The server has sent BULK bytes to each client. Of the first RINGS clients all are read, and the
# rings are empty; the others' bytes are read after @squeeze(link, group), of which the server's
# part is @own(link), and have to be right. A round for which the time that a ring keeps its pages
# was too short is done again.
def full_rings(squeeze, own, **limits):
    group = Group('memory_rings', **limits)
    parameter('ring_size', RING_SIZE)

    def serve(link):
        sockets = accept(link, 2 * RINGS)
        answer_all(sockets)
        send_bulk(sockets[RINGS:])
        link.say('sent')
        while link.hear() == 'fill':
            fill(link, sockets[:RINGS])
            own(link)
        answer_all(sockets)

    def taken(link, idle):
        before = counter('pages_reclaimed')
        link.say('fill')
        read_filled(link, idle)
        squeeze(link, group)
        pages = counter('pages_reclaimed') - before
        print('remark: %d pages of %d idle rings were taken back' % (pages, RINGS))
        return pages * PAGE > RINGS * BULK // 2

    link = Link(group, serve)
    try:
        sockets = connect(link, 2 * RINGS)
        ask_all(sockets)
        link.hear()
        check(counter('ring_memory_bytes') > RINGS * BULK, 'the rings are not full')
        for tries in range(5):
            if taken(link, sockets[:RINGS]):
                break
            time.sleep(2)	# after pressure, TCP takes the bytes for a second
        else:
            raise Failure('few pages were taken back')
        read_bulk(sockets[RINGS:])
        link.say('end')
        ask_all(sockets)
        link.ends_well()
        check(group.events('oom_kill') == 0, 'somebody was killed')
    finally:
        parameter('ring_size', 65536)


def take_and_say(link):
    link.hear()
    memory = take_memory(12 * MIB)
    link.say('done')
    link.hear()
    del memory


def page_faults(link, group):
    link.say()
    link.hear()
    link.say()


def max_takes_idle_rings():
    full_rings(page_faults, take_and_say, max=26 * MIB)


def high_takes_idle_rings():
    full_rings(page_faults, take_and_say, high=26 * MIB)


def wait(link):
    link.hear()


def reclaim_takes_idle_rings():
    def squeeze(link, group):
        try:
            group.write('memory.reclaim', 16 * MIB)
        except OSError:
            pass	# it counts what it takes from files, not what it takes from us
        link.say()

    full_rings(squeeze, wait)


def machine_takes_idle_rings():
    def squeeze(link, group):
        with open('/proc/sys/vm/drop_caches', 'w') as f:
            f.write('2')
        link.say()

    full_rings(squeeze, wait)


# A cgroup close to its memory.high gets nothing new; two seconds after there is room, it does.
def pressure_keeps_to_tcp():
    group = Group('memory_pressure')

    def serve(link):
        sockets = accept(link, 20)
        link.hear()
        for _ in range(3):
            answer_all(sockets)
        link.say('answered')	# a send is counted when it is done, and its bytes may be read before
        link.hear()
        answer_all(sockets)

    by_tcp, told = counter('tcp_bytes_memory'), counter('ends_limited')
    link = Link(group, serve)
    sockets = connect(link, 20)
    group.write('memory.high', group.current() + 64 * PAGE)
    link.say()
    for _ in range(3):
        ask_all(sockets)
    link.hear()
    check(counter('tcp_bytes_memory') - by_tcp >= 2 * 20 * 6, 'bytes of the full cgroup went by ring')
    check(counter('ends_limited') - told == 20, '%d ends were told of' % (counter('ends_limited') - told))
    group.write('memory.high', 'max')
    time.sleep(1.5)	# the module's own second
    before = counter('tcp_bytes_memory')
    link.say()
    ask_all(sockets)
    link.ends_well()
    check(counter('tcp_bytes_memory') == before, 'the rings are not used again')


# A stream keeps going while another process of its cgroup takes memory and gives it back, for
# which rings that are idle have to go.
def stream(limit):
    group, idle, chunk, chunks, turn = Group('memory_stream'), 5, 65536, 384, 96
    parameter('ring_size', RING_SIZE)

    def serve(link):
        sockets = accept(link, 1 + idle)
        # What TCP may queue beside the ring has to fit as well.
        sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 262144)
        answer_all(sockets)
        link.hear()
        send_bulk(sockets[1:])
        link.say('sent')
        link.hear()
        for i in range(chunks):
            sockets[0].sendall(pattern(i, chunk)[:chunk])
        for i in range(turn):
            link.hear()		# so that the ring is never full: a full one sends the rest by TCP
            sockets[0].sendall(pattern(i, chunk)[:chunk])

    def squeeze(link):
        while link.hear() == 'go':
            take_memory(7 * MIB)
            link.say('done')

    names = 'ring_bytes', 'tcp_bytes_memory', 'pages_reclaimed'
    before = [counter(name) for name in names]
    link, other = Link(group, serve), Link(group, squeeze)
    try:
        sockets = connect(link, 1 + idle)
        ask_all(sockets)
        group.write('memory.' + limit, group.current() + 10 * MIB)
        link.say()
        link.hear()
        read_bulk(sockets[1:])
        for i in range(chunks):
            if i % turn == 0:
                other.say()
            if i == 0:
                link.say()
            check(read_all(sockets[0], chunk) == pattern(i, chunk)[:chunk], 'bytes differ')
            if i % turn == turn - 1:
                other.hear()
        other.say('end')
        other.ends_well()
        time.sleep(1.5)	# the module's own second
        relaxed = counter('ring_bytes')
        for i in range(turn):
            link.say()
            check(read_all(sockets[0], chunk) == pattern(i, chunk)[:chunk], 'bytes differ')
        relaxed = counter('ring_bytes') - relaxed
        link.ends_well()
        ring, tcp, pages = [counter(name) - n for name, n in zip(names, before)]
        print('remark: %d bytes by ring, %d by TCP as memory was short; %d pages taken back' %
              (ring, tcp, pages))
        check(ring >= idle * BULK, 'the idle connections did not use their rings')
        check(relaxed > turn * chunk * 3 // 4, '%d bytes by ring after the squeezes' % relaxed)
        check(pages > 0, 'no ring had to go: the test shows nothing')
        check(group.events('oom_kill') == 0, 'somebody was killed')
    finally:
        parameter('ring_size', 65536)


def stream_under_max():
    stream('max')


def stream_under_high():
    stream('high')


# Unread bytes fill the cgroup until one message goes by TCP. Room is left for a page fault. Each
# client asks just before its messages: towards an end that heard nothing for path_timeout,
# bytes would go by TCP for that reason.
def full():
    clients, messages, size = 30, 8, 100000
    data, limit = pattern(1, size)[:size], 20 * MIB
    group = Group('memory_full', max=limit)
    parameter('ring_size', RING_SIZE)

    def serve(link):
        sockets = accept(link, clients)
        for s in sockets:
            answer_all([s])
            while link.hear() == 'send':
                s.sendall(data)
                link.say('sent')
        take_memory(128 << 10)
        link.say('done')
        answer_all(sockets)

    link = Link(group, serve)
    try:
        sockets = connect(link, clients)
        ring, tcp = counter('ring_bytes'), counter('tcp_bytes_memory')
        unread, is_full = [], False
        for s in sockets:
            ask_all([s])
            for _ in range(messages):
                if is_full:
                    break
                link.say('send')
                link.hear()
                unread.append(s)
                # asking the module takes long
                is_full = group.current() > limit - 2 * MIB and counter('tcp_bytes_memory') > tcp
            link.say('next')
        link.hear()
        print('remark: %d messages of %d bytes were unread' % (len(unread), size))
        check(is_full, 'there was room for every byte: the test shows nothing')
        check(counter('ring_bytes') - ring > limit * 3 // 4, 'few bytes went by ring')
        for s in unread:
            check(read_all(s, size) == data, 'bytes differ')
        ask_all(sockets)
        link.ends_well()
        check(group.events('oom_kill') == 0, 'somebody was killed')
    finally:
        parameter('ring_size', 65536)


# A ring that has carried nothing for a second or two keeps a page.
def idle_ring_keeps_a_page():
    idle = open(PARAMETERS + 'ring_idle').read()
    parameter('ring_idle', 0)
    group = Group('memory_spare')

    def serve(link):
        sockets = accept(link, 10)
        answer_all(sockets)
        answer_all(sockets)
        for i, s in enumerate(sockets):
            s.sendall(pattern(i, 60000)[:60000])
        link.say('sent')
        link.hear()
        answer_all(sockets)

    link = Link(group, serve)
    try:
        sockets = connect(link, 10)
        ask_all(sockets)
        ask_all(sockets)
        link.hear()
        for i, s in enumerate(sockets):
            check(read_all(s, 60000) == pattern(i, 60000)[:60000], 'bytes differ')
        end = time.monotonic() + 60
        while counter('ring_memory_bytes') > 20 * PAGE:
            check(time.monotonic() < end, '%d bytes are kept' % counter('ring_memory_bytes'))
            time.sleep(0.1)
        check(counter('ring_memory_bytes') == 20 * PAGE, 'not even a page is kept')
        link.say()
        ask_all(sockets)
        link.ends_well()
    finally:
        parameter('ring_idle', idle)


# What the module has for a connection is its accepting process's, too.
def accepted_is_charged():
    n, sizes = 400, []
    for paired in 0, 1:
        parameter('enroll_all', paired)
        group = Group('memory_accepted%d' % paired)

        def serve(link):
            sockets = accept(link, n)
            for s in sockets:
                read_all(s, 3)
            link.say('read')
            link.hear()

        link = Link(group, serve)
        sockets = connect(link, n)
        for s in sockets:
            s.sendall(b'ask')
        link.hear()
        time.sleep(2.5)	# the kernel's own interval between two counts
        sizes.append(group.keyed('memory.stat', 'slab_unreclaimable'))
        link.say()
        link.ends_well()
        for s in sockets:
            s.close()
    each = (sizes[1] - sizes[0]) // n
    print('remark: %d bytes are charged for an accepted connection' % each)
    check(each > 500, 'the accepting process is charged %d bytes for a connection' % each)


def so_splice(state):
    subprocess.run(['socksplice', 'feature', 'set', 'so-splice', state], check=True, stdout=subprocess.DEVNULL)


# What a mover puts into a ring is charged to the process that set SO_SPLICE.
def mover_is_charged():
    group = Group('memory_mover')
    parameter('ring_size', RING_SIZE)
    so_splice('on')

    def serve(link):
        source, sink = accept(link, 2)
        answer_all([source, sink])
        source.setsockopt(socket.SOL_SOCKET, SO_SPLICE, sink.fileno())
        link.say('spliced')
        link.hear()

    link = Link(group, serve)
    try:
        source, sink = connect(link, 2)
        ask_all([source, sink])
        link.hear()
        before, moved = group.current(), counter('so_splice_to_ring_bytes')
        source.sendall(bulk(0))
        check(len(sink.recv(BULK, socket.MSG_PEEK | socket.MSG_WAITALL)) == BULK, 'not all arrived')
        grown = group.current() - before
        check(counter('so_splice_to_ring_bytes') - moved > BULK // 2, 'few bytes went by ring')
        print('remark: %d bytes are charged for %d that were moved' % (grown, BULK))
        # The kernel charges 64 pages at once, which with pages of 16 KB is more than BULK.
        check(grown > BULK // 2 or PAGE > 4096, '%d bytes are charged' % grown)
        read_bulk([sink])
        link.say()
        link.ends_well()
    finally:
        so_splice('off')
        parameter('ring_size', 65536)


# Of a process that failed by itself the reason is printed already. The others go before their
# sockets do, which @e keeps: else they would complain of that.
def explain(e):
    spoke = False
    for pid in Link.processes:
        os.kill(pid, signal.SIGKILL)
        spoke |= os.WIFEXITED(os.waitpid(pid, 0)[1])
    if not spoke:
        print(e if isinstance(e, Failure) else repr(e))
    for group in Group.made:
        if group.events('oom_kill'):
            print('a process was killed, as memory was short: %r' % e)


try:
    globals()[sys.argv[1]]()
except Exception as e:
    explain(e)
    sys.exit(1)
