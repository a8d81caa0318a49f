// SPDX-License-Identifier: GPL-2.0
/*
 * What people measure with OpenBSD's splicebench: a relay that forwards one TCP connection, or
 * what comes in one UDP socket, in one direction, by the option of the BSDs,
 * setsockopt(SOL_SOCKET, SO_SPLICE), or by read(2) and write(2). With a sender and a receiver for
 * it.
 *
 *	splicebench [-ku] receive ADDRESS PORT
 *				prints "BYTES SECONDS" at the end of the stream
 *	splicebench [-cku] relay ADDRESS FROM-PORT TO-PORT
 *				prints "BYTES"
 *	splicebench [-ku] [-t TRAIN] send ADDRESS PORT SECONDS
 *
 *	-c		copies
 *	-k		kTLS (TLS 1.3, AES-128-GCM) on both connections, with the same keys
 *	-u		UDP, in datagrams of DATAGRAM bytes. The stream has ended after SILENCE
 *			seconds without one.
 *	-t TRAIN	sends this many datagrams with each write (UDP_SEGMENT)
 *
 * A listener prints "listening PORT" first; FROM-PORT 0 lets the kernel choose. Each serves one
 * connection.
 */
#include <err.h>
#include <errno.h>
#include <linux/tls.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* As on OpenBSD and FreeBSD. The headers of Linux do not have it. */
#define SO_SPLICE	0x1023
struct splice {
	int		sp_fd;
	off_t		sp_max;
	struct timeval	sp_idle;
};

#define DATAGRAM	1400
#define SILENCE		2

static char buffer[64 * 1024];
static int type = SOCK_STREAM;
static bool tls;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static struct addrinfo *resolve(const char *address, const char *port)
{
	const struct addrinfo hints = {
		.ai_socktype = type,
		.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
	};
	struct addrinfo *found;
	int error = getaddrinfo(address, port, &hints, &found);

	if (error)
		errx(1, "%s port %s: %s", address, port, gai_strerror(error));
	return found;
}

/* With kTLS what @fd sends, or receives, from now on is in records. */
static int secure(int fd, int direction)
{
	struct tls12_crypto_info_aes_gcm_128 info = {
		.info = { .version = TLS_1_3_VERSION, .cipher_type = TLS_CIPHER_AES_GCM_128 },
		.key = "a key of 16 byte",
	};

	if (tls && (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 4) ||
		    setsockopt(fd, SOL_TLS, direction, &info, sizeof(info))))
		err(1, "kTLS");
	return fd;
}

static int serve(const char *address, const char *port)
{
	struct addrinfo *at = resolve(address, port);
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	int fd = socket(at->ai_family, type, 0), one = 1, s;
	char name[16];

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) ||
	    (type == SOCK_STREAM && listen(fd, 1)) || getsockname(fd, (void *)&own, &len))
		err(1, "listen at %s port %s", address, port);
	getnameinfo((void *)&own, len, NULL, 0, name, sizeof(name), NI_NUMERICSERV);
	printf("listening %s\n", name);
	fflush(stdout);
	if (type == SOCK_DGRAM)
		return fd;
	s = accept(fd, NULL, NULL);
	if (s < 0)
		err(1, "accept");
	close(fd);
	return secure(s, TLS_RX);
}

static int reach(const char *address, const char *port)
{
	struct addrinfo *at = resolve(address, port);
	int fd = socket(at->ai_family, type, 0);

	if (fd < 0 || connect(fd, at->ai_addr, at->ai_addrlen))
		err(1, "connect to %s port %s", address, port);
	return secure(fd, TLS_TX);
}

/* The next bytes of @from, which may be silent until they begin to come. 0: it has ended. */
static size_t take(int from, bool begun)
{
	const struct timeval silence = { .tv_sec = begun ? SILENCE : 0 };
	static int waits = -1;
	ssize_t n;

	if (type == SOCK_DGRAM && waits != begun) {
		if (setsockopt(from, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof(silence)))
			err(1, "SO_RCVTIMEO");
		waits = begun;
	}
	n = read(from, buffer, sizeof(buffer));
	if (n < 0 && type == SOCK_DGRAM && errno == EAGAIN)
		return 0;
	if (n < 0)
		err(1, "read");
	return n;
}

static void receive(int from)
{
	double start = 0, last = 0;
	long long bytes = 0;
	size_t n;

	while ((n = take(from, bytes))) {
		last = now();
		if (!bytes)
			start = last;
		bytes += n;
	}
	printf("%lld %f\n", bytes, (type == SOCK_DGRAM ? last : now()) - start);
}

static void send_for(int to, double seconds, size_t each)
{
	double end = now() + seconds;

	while (now() < end) {
		if (write(to, buffer, each) < 0)
			err(1, "write");
	}
	if (type == SOCK_DGRAM)
		return;
	if (shutdown(to, SHUT_WR))
		err(1, "shutdown");
	/* until the relay has closed: all has arrived */
	if (read(to, buffer, sizeof(buffer)))
		errx(1, "the relay did not close in order");
}

static long long copy(int from, int to)
{
	long long bytes = 0;
	size_t n, done;
	ssize_t k;

	while ((n = take(from, bytes))) {
		for (done = 0; done < n; done += k) {
			k = write(to, buffer + done, n - done);
			if (k < 0)
				err(1, "write");
		}
		bytes += n;
	}
	return bytes;
}

static long long by_splice(int from, int to)
{
	const struct splice s = { .sp_fd = to,
				  .sp_idle.tv_sec = type == SOCK_DGRAM ? SILENCE : 0 };
	const int expected = type == SOCK_DGRAM ? ETIMEDOUT : 0;
	struct pollfd over = { .fd = from, .events = POLLIN };
	long long bytes;
	socklen_t len = sizeof(bytes);
	int error;
	socklen_t error_len = sizeof(error);

	if (setsockopt(from, SOL_SOCKET, SO_SPLICE, &s, sizeof(s)))
		err(1, "setsockopt(SOL_SOCKET, SO_SPLICE)");
	while (poll(&over, 1, -1) < 0) {
		if (errno != EINTR)
			err(1, "poll");
	}
	if (getsockopt(from, SOL_SOCKET, SO_ERROR, &error, &error_len) ||
	    error != expected)
		errx(1, "the splice ended: %s", strerror(error));
	if (recv(from, buffer, 1, MSG_DONTWAIT) != (type == SOCK_DGRAM ? -1 : 0))
		errx(1, "the splice has left bytes");
	if (getsockopt(from, SOL_SOCKET, SO_SPLICE, &bytes, &len))
		err(1, "getsockopt(SOL_SOCKET, SO_SPLICE)");
	return bytes;
}

static void relay(const char *address, const char *from_port, const char *to_port, bool copies)
{
	int from = serve(address, from_port), to = reach(address, to_port);
	long long bytes = copies ? copy(from, to) : by_splice(from, to);

	if (type == SOCK_STREAM && shutdown(to, SHUT_WR))
		err(1, "shutdown");
	printf("%lld\n", bytes);
	/* until the receiver has closed */
	if (type == SOCK_STREAM && read(to, buffer, sizeof(buffer)))
		errx(1, "the receiver did not close in order");
	close(from);
}

static void send_to(const char *address, const char *port, double seconds, int train)
{
	const int segment = DATAGRAM;
	int to = reach(address, port);

	if (train > 1 && setsockopt(to, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)))
		err(1, "UDP_SEGMENT");
	send_for(to, seconds, type == SOCK_DGRAM ? (size_t)train * segment : sizeof(buffer));
}

static void usage(void)
{
	errx(2, "usage: splicebench [-ku] receive ADDRESS PORT | [-cku] relay ADDRESS FROM-PORT TO-PORT | "
	     "[-ku] [-t TRAIN] send ADDRESS PORT SECONDS");
}

int main(int argc, char **argv)
{
	bool copies = false;
	int option, train = 1;

	signal(SIGPIPE, SIG_IGN);
	while ((option = getopt(argc, argv, "ckut:")) != -1) {
		if (option == 'c')
			copies = true;
		else if (option == 'k')
			tls = true;
		else if (option == 'u')
			type = SOCK_DGRAM;
		else if (option == 't')
			train = atoi(optarg);
		else
			usage();
	}
	argc -= optind;
	argv += optind;
	if (train < 1 || train > (int)sizeof(buffer) / DATAGRAM)
		errx(2, "a train has 1 to %zu datagrams", sizeof(buffer) / DATAGRAM);
	if (argc == 3 && !strcmp(argv[0], "receive"))
		receive(serve(argv[1], argv[2]));
	else if (argc == 4 && !strcmp(argv[0], "send"))
		send_to(argv[1], argv[2], atof(argv[3]), train);
	else if (argc == 4 && !strcmp(argv[0], "relay"))
		relay(argv[1], argv[2], argv[3], copies);
	else
		usage();
	return 0;
}
