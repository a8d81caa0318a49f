# SPDX-License-Identifier: GPL-2.0
"""real.py MODE...: tests other programs through a relay: iperf3, nginx under wrk, redis, PostgreSQL,
ssh, gRPC, FTP, and HAProxy and nginx with PROXY headers."""

import ftplib
import io
import json
import os
import pwd
import queue
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import grpc
from lib import FOLDER, Relay, case, certificate, check, done, listener, meanwhile, path, read_exactly, run, write

FULL = bool(os.environ.get("TEST_FULL"))
SECONDS = "5" if FULL else "2"


def free_port():
    s = listener()
    with s:
        return s.getsockname()[1]


class Program:
    """A server program. Its constructor waits until its port answers."""

    def __init__(self, port, *command, **options):
        self.port = port
        # Appending, as said() moves the offset that the program writes at.
        self.log = open(path("program.log"), "a+")
        self.log.truncate(0)
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, **options)
        end = time.monotonic() + 60
        while True:
            check(self.process.poll() is None, command[0], "ended:", self.said())
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                check(time.monotonic() < end, command[0], "does not answer:", self.said())
                time.sleep(0.05)

    def said(self):
        self.log.seek(0)
        return self.log.read()[-2000:]

    def until(self, text):
        end = time.monotonic() + 60
        while text not in self.said():
            check(self.process.poll() is None and time.monotonic() < end, "no", text, "in", self.said())
            time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def relay(mode, port, more=""):
    return Relay(f"[[listener]]\nlisten = '127.0.0.1:0'\nto = '127.0.0.1:{port}'\nmode = '{mode}'\n{more}")


def iperf3(mode):
    port = free_port()
    # Its server refuses a client until it has ended the test before, and the constructor's look at
    # the port is the first one.
    with Program(port, "iperf3", "-s", "-p", str(port), "--forceflush") as server, relay(mode, port) as r:
        for test, more in enumerate(([], ["-R"], ["-P", "8"]), 2):
            server.until(f"(test #{test})")
            out = json.loads(run("iperf3", "-c", "127.0.0.1", "-p", str(r.ports[0]), "-t", SECONDS, "-J", *more))
            check("error" not in out, out)
            rate = out["end"]["sum_received"]["bits_per_second"]
            check(rate > 1e7 and out["end"]["sum_received"]["bytes"] > 0, rate)
            print(f"# {mode}: iperf3 {' '.join(more) or 'one stream'}: {rate / 1e9:.2f} Gbit/s")


NGINX = """daemon off; master_process off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
uwsgi_temp_path {folder}; scgi_temp_path {folder}; root {folder}; keepalive_requests 1000000;
server {{ listen 127.0.0.1:{port} {option}; set_real_ip_from 127.0.0.1; real_ip_header proxy_protocol;
location = /who {{ return 200 "$remote_addr:$remote_port\\n"; }} }} }}
"""


def nginx(option=""):
    port = free_port()
    with open(path("page"), "w") as f:
        f.write("x" * 20_000)
    conf = write("nginx.conf", NGINX.format(folder=FOLDER.name, port=port, option=option))
    os.chmod(FOLDER.name, 0o755)
    return Program(port, "nginx", "-c", conf, "-p", FOLDER.name)


def wrk(mode):
    with nginx() as n, relay(mode, n.port) as r:
        for more in ((), ("-H", "Connection: close")):
            out = run("wrk", "-t", "2", "-c", "50", "-d", SECONDS, *more, f"http://127.0.0.1:{r.ports[0]}/page")
            check("Socket errors" not in out and "Non-2xx" not in out, out)
            rate = float(re.search(r"Requests/sec: *([\d.]+)", out)[1])
            check(rate > 50, out)
            print(f"# {mode}: wrk {' '.join(more) or 'keep-alive'}: {rate:.0f} requests a second")


def redis(mode):
    port = free_port()
    command = ("redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1", "--dir", FOLDER.name)
    with Program(port, *command), relay(mode, port) as r:
        to = ("-h", "127.0.0.1", "-p", str(r.ports[0]))
        out = run("redis-benchmark", *to, "-n", "20000", "-c", "50", "-t", "set,get", "-d", "1000", "--csv")
        check(len(re.findall(r'^"(SET|GET)"', out, re.M)) == 2 and "rror" not in out, out)
        big = "v" * 1_000_000
        run("redis-cli", *to, "-x", "set", "big", input=big)
        check(run("redis-cli", *to, "get", "big").rstrip("\n") == big, "another value")
        out = run("redis-benchmark", *to, "-n", "20000", "-P", "16", "-t", "ping", "--csv")
        check("rror" not in out, out)


def postgres(mode):
    where = run("bash", "-c", "ls -d /usr/lib/postgresql/*/bin | tail -n 1").strip()
    port, data = free_port(), path("postgres")
    shutil.rmtree(data, ignore_errors=True)
    os.mkdir(data)
    os.chmod(FOLDER.name, 0o755)
    user = {}
    if os.getuid() == 0:
        entry = pwd.getpwnam("postgres")
        os.chown(data, entry.pw_uid, entry.pw_gid)
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    run(f"{where}/initdb", "-D", data, "-A", "trust", "-U", "postgres", **user)
    server = (f"{where}/postgres", "-D", data, "-p", str(port), "-c", "fsync=off", "-c", f"unix_socket_directories={data}")
    with Program(port, *server, **user), relay(mode, port) as r:
        to = ("-h", "127.0.0.1", "-p", str(r.ports[0]), "-U", "postgres", "postgres")
        # The server listens before it lets clients in.
        run("bash", "-c", f"until {where}/pg_isready -q -h 127.0.0.1 -p {port}; do sleep 0.1; done")
        run(f"{where}/pgbench", "-q", "-i", "-s", "2", *to)
        out = run(f"{where}/pgbench", "-c", "8", "-j", "2", "-T", SECONDS, *to)
        check(re.search(r"number of failed transactions: 0 ", out), out)
        print(f"# {mode}: pgbench: {re.search(r'tps = ([0-9.]+)', out)[1]} transactions a second")


def ssh(mode):
    """The relay adds no delay between a keystroke and its echo."""
    port = free_port()
    for name in ("host", "user"):
        if not os.path.exists(path(name)):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(name))
    shutil.copy(path("user.pub"), path("authorized"))
    os.chmod(FOLDER.name, 0o700)
    os.makedirs("/run/sshd", exist_ok=True)
    conf = write("sshd.conf", f"ListenAddress 127.0.0.1:{port}\nHostKey {path('host')}\nAuthorizedKeysFile {path('authorized')}\n"
                 "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n")
    me = pwd.getpwuid(os.getuid()).pw_name

    def echoes(at):
        command = ["ssh", "-tt", "-p", str(at), "-i", path("user"), "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR",
                   "-o", f"UserKnownHostsFile={path('known')}", f"{me}@127.0.0.1", "stty raw -echo; echo ready; exec cat"]
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        keys = client.stdin.fileno()
        try:
            said = b""
            while b"ready" not in said:
                part = os.read(client.stdout.fileno(), 4096)
                if not part:
                    raise AssertionError(f"ssh ended: {client.stderr.read().decode()}")
                said += part
            while b"\n" not in said:
                said += os.read(client.stdout.fileno(), 4096)
            times = []
            for _ in range(100):
                began = time.monotonic()
                os.write(keys, b"k")
                check(os.read(client.stdout.fileno(), 1) == b"k")
                times.append(time.monotonic() - began)
            return sorted(times)[50]
        finally:
            client.kill()
            client.wait()
    with Program(port, "/usr/sbin/sshd", "-D", "-e", "-f", conf), relay(mode, port) as r:
        direct, through = echoes(port), echoes(r.ports[0])
        print(f"# {mode}: an echo takes {direct * 1e6:.0f} us, through the relay {through * 1e6:.0f} us")
        check(through < direct + 0.01, f"an echo takes {through * 1000:.1f} ms, {direct * 1000:.1f} ms without the relay")


HAPROXY = """defaults
 timeout connect 5s
 timeout client 60s
 timeout server 60s
"""

STREAM = """{module}
daemon off; master_process off; worker_processes 1; pid {folder}/stream.pid; error_log stderr;
events {{ worker_connections 256; }}
stream {{ server {{ listen 127.0.0.1:{port} proxy_protocol; set_real_ip_from 127.0.0.1;
proxy_pass 127.0.0.1:{to}; proxy_protocol on; }} }}
"""


def haproxy(port, *sections):
    return Program(port, "haproxy", "-db", "-f", write("haproxy.cfg", HAPROXY + "".join(sections)))


def nginx_stream(port, to):
    module = "/usr/lib/nginx/modules/ngx_stream_module.so"
    conf = write("stream.conf", STREAM.format(folder=FOLDER.name, port=port, to=to,
                                              module=f"load_module {module};" if os.path.exists(module) else ""))
    return Program(port, "nginx", "-c", conf, "-p", FOLDER.name)


def who(s):
    """Asks an HTTP server who the client is."""
    s.sendall(b"GET /who HTTP/1.0\r\n\r\n")
    answer = b""
    while part := s.recv(4096):
        answer += part
    return answer.decode().rpartition("\r\n\r\n")[2].strip()


def proxy_headers(mode):
    """PROXY headers carry the client's address from a relay over HAProxy, or nginx's stream module, and
    a second relay to nginx."""
    tlvs = "proxy_tlvs = ['unique-id', 'crc32c']\n"
    for out, more in (("v1", ""), ("v2", ""), ("v2", tlvs)):
        with nginx("proxy_protocol") as n, relay(mode, n.port, f"proxy_in = 'any'\nproxy_out = '{out}'\n{more}") as last:
            port, at = free_port(), last.ports[0]
            middles = (lambda: haproxy(port, f"listen f\n mode tcp\n bind 127.0.0.1:{port} accept-proxy\n"
                                             f" server s 127.0.0.1:{at} send-proxy-v2\n"),
                       lambda: nginx_stream(port, at))
            for middle in middles:
                with middle():
                    for version in ("v1", "v2"):
                        with relay(mode, port, f"proxy_out = '{version}'\n") as first, first.connect() as s:
                            expected = f"127.0.0.1:{s.getsockname()[1]}"
                            check((answer := who(s)) == expected, version, out, "nginx says", answer)


def tlvs(mode):
    """A relay tells HAProxy the server name and an id in TLVs, with a checksum, which HAProxy compares.
    HAProxy ends TLS and tells a second relay its own name of the server and the id that it was told.
    This one passes both on to an HAProxy that answers with them."""
    page, port = free_port(), free_port()
    some = "proxy_out = 'v2'\nproxy_tlvs = ['authority', 'alpn', 'unique-id', 'crc32c']\n"
    answer = (f"frontend page\n mode http\n bind 127.0.0.1:{page} accept-proxy\n http-request return content-type text/plain "
              'lf-string "%[fc_pp_authority] %[fc_pp_unique_id] %[src]:%[src_port]"\n')
    with relay(mode, page, f"proxy_in = 'v2'\n{some}") as last:
        ends_tls = (f"listen tls\n mode tcp\n bind 127.0.0.1:{port} accept-proxy ssl crt {certificate('tlvs')} alpn http/1.1\n"
                    " unique-id-format %[fc_pp_unique_id]\n tcp-request content reject unless { fc_pp_authority -m found }\n"
                    f" server s 127.0.0.1:{last.ports[0]} send-proxy-v2 proxy-v2-options authority,unique-id,crc32c\n")
        with haproxy(port, answer, ends_tls), relay(mode, port, f"front = 'tls'\n{some}") as first:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols(["http/1.1"])
            raw = first.connect()
            address = "{}:{}".format(*raw.getsockname())
            with context.wrap_socket(raw, server_hostname="Shop.example") as s:
                said = who(s)
            line, later = first.line(), last.line(client=address)
            check(said == f"shop.example {line['unique_id']} {address}", "HAProxy says", said, "and the log", line)
            check(later["unique_id"] == line["unique_id"], later)


GRPC = """
import concurrent.futures, grpc

def echo(requests, context):
    yield from requests

def count(request, context):
    for i in range(int(request)):
        yield b"%06d" % i + b"x" * 20_000

server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", {{
    "echo": grpc.stream_stream_rpc_method_handler(echo), "count": grpc.unary_stream_rpc_method_handler(count)}})])
server.add_insecure_port("127.0.0.1:{port}")
server.start()
server.wait_for_termination()
"""


def grpc_streams(mode):
    """Streams of gRPC: message by message both ways, many at a time, and a long one from the server."""
    port = free_port()
    script = write("grpc_server.py", GRPC.format(port=port))
    with Program(port, sys.executable, script), relay(mode, port) as r, \
            grpc.insecure_channel(f"127.0.0.1:{r.ports[0]}") as channel:
        echo, count = channel.stream_stream("/test/echo"), channel.unary_stream("/test/count")

        def talk(number):
            """Sends the next message when the answer to the one before has come."""
            out = queue.SimpleQueue()
            answers = echo(iter(out.get, None), timeout=60)
            for i in range(100):
                out.put(message := b"%d %d" % (number, i) + b"x" * (i * 37))
                check(next(answers) == message, "another answer")
            out.put(None)
            check(not list(answers), "an answer too many")
        talks = [meanwhile(talk, i) for i in range(5)]
        number = 500
        got = list(count(str(number).encode(), timeout=60))
        check(len(got) == number and all(m == b"%06d" % i + b"x" * 20_000 for i, m in enumerate(got)), len(got), "messages")
        for t in talks:
            t.join()
        check(r.get()["listeners"]["127.0.0.1:0"]["bytes_down"][mode] > number * 20_000, "by another way:", r.get())


FTP = """
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer

FTPHandler.authorizer = DummyAuthorizer()
FTPHandler.authorizer.add_user("user", "word", "{folder}", perm="elradfmwMT")
FTPHandler.masquerade_address = "127.0.0.2"
FTPHandler.passive_ports = [{data}]
FTPServer(("127.0.0.1", {port}), FTPHandler).serve_forever()
"""


def ftp(mode):
    """The passive mode of FTP, with a listener for commands and one for data: the server tells its
    clients the relay's address, and its only port for data."""
    port, data = free_port(), free_port()
    folder = path("ftp")
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    script = write("ftp_server.py", FTP.format(folder=folder, port=port, data=data))
    listeners = "".join(f"[[listener]]\nname = '{name}'\nlisten = '127.0.0.2:{at}'\nto = '127.0.0.1:{at}'\nmode = '{mode}'\n"
                        for name, at in (("commands", port), ("data", data)))
    with Program(port, sys.executable, "-W", "ignore", script), Relay(listeners) as r, ftplib.FTP(timeout=60) as client:
        client.connect("127.0.0.2", port)
        client.login("user", "word")
        for size in (0, 1, 5_000_000):
            content = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000) + b"x" * (size % 1000)
            client.storbinary(f"STOR {size}", io.BytesIO(content))
            got = []
            client.retrbinary(f"RETR {size}", got.append)
            check(b"".join(got) == content, "another file of", size)
        check(sorted(client.nlst()) == ["0", "1", "5000000"], client.nlst())
        client.quit()
        state = r.get()["listeners"]
        check(state["data"]["accepted"] >= 7 and state["data"]["bytes_up"][mode] == 5_000_001, state)


CASES = [iperf3, wrk, redis, postgres, ssh, grpc_streams, ftp, proxy_headers, tlvs]

if __name__ == "__main__":
    for mode_name in sys.argv[1:]:
        for one in CASES:
            case(f"{mode_name}/{one.__name__}", one, mode_name)
    done()
