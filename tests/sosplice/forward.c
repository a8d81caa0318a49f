// SPDX-License-Identifier: GPL-2.0
/*
 * A forwarder of HTTP connections that are kept alive, as relayd(8) is one: it copies headers
 * and the lines between chunks, has bodies spliced to their length, and learns that a splice
 * has ended from the errno of a read or a write that meets it, as libevent's users do, or
 * from bytes that it can read again.
 */
#include <semaphore.h>

#include "sosplice.h"

/* On a connection. Each costs some thirty wake-ups between CPUs. If the CPUs are emulated on a busy
 * host, each wake-up waits until the host lets the other one run, and 200 requests may take most
 * of a minute.
 */
static unsigned int requests = 200;

enum state { HEAD, BODY, CHUNK, CHUNK_DATA, CHUNK_END, TRAILER };

/* One direction of the forwarder. */
struct half {
	int from, to;
	enum state state;
	bool chunked, spliced, eof;
	uint64_t left;		/* of the body or chunk */
	size_t len;
	char buf[512];		/* small, so that bodies are left to be spliced */
	struct half *other;
	unsigned int *splices;
};

/* The splice has ended, wherever it was. */
static void settle(struct half *h)
{
	int64_t moved;

	if (!h->spliced)
		return;		/* this was known by the bytes behind it */
	moved = socksplice_moved(h->from);
	check(moved >= 0 && (uint64_t)moved <= h->left, "%lld of %llu", (long long)moved,
	      (unsigned long long)h->left);
	h->left -= moved;
	h->spliced = false;
}

/* Writes the first @n bytes of the buffer. */
static void pass(struct half *h, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = send(h->to, h->buf + done, n - done, MSG_DONTWAIT | MSG_NOSIGNAL);
		struct pollfd p = { .fd = h->to, .events = POLLOUT };

		if (got >= 0)
			done += got;
		else if (errno == EAGAIN)
			poll(&p, 1, -1);
		else if (errno == EFBIG)
			settle(h->other);
		else
			die("write: %s", strerror(errno));
	}
	h->len -= n;
	memmove(h->buf, h->buf + n, h->len);
}

static void body_begins(struct half *h, enum state with, enum state without)
{
	h->state = h->left ? with : without;
}

/* False if there is no whole line. */
static bool pass_line(struct half *h)
{
	char *nl = memchr(h->buf, '\n', h->len);
	bool empty = nl && nl - h->buf == 1;

	if (!nl)
		return false;
	*nl = 0;
	switch (h->state) {
	case HEAD:
		if (!strncmp(h->buf, "Content-Length: ", 16))
			h->left = strtoull(h->buf + 16, NULL, 10);
		else if (!strncmp(h->buf, "Transfer-Encoding: chunked", 26))
			h->chunked = true;
		else if (empty && h->chunked)
			h->state = CHUNK;
		else if (empty)
			body_begins(h, BODY, HEAD);
		break;
	case CHUNK:
		h->left = strtoull(h->buf, NULL, 16);
		body_begins(h, CHUNK_DATA, TRAILER);
		break;
	case CHUNK_END:
		check(empty, "framing is lost");
		h->state = CHUNK;
		break;
	default:	/* TRAILER */
		check(empty, "framing is lost");
		h->chunked = false;
		h->state = HEAD;
	}
	*nl = '\n';
	pass(h, nl + 1 - h->buf);
	return true;
}

static void step(struct half *h)
{
	while (!h->spliced) {
		size_t n = h->left < h->len ? h->left : h->len;

		if (h->state != BODY && h->state != CHUNK_DATA) {
			if (!pass_line(h))
				return;
			continue;
		}
		pass(h, n);
		h->left -= n;
		if (!h->left) {
			h->state = h->state == BODY ? HEAD : CHUNK_END;
		} else {
			splice_fds(h->from, h->to, h->left, 0);
			h->spliced = true;
			++*h->splices;
		}
	}
}

static void readable(struct half *h)
{
	ssize_t n = recv(h->from, h->buf + h->len, sizeof(h->buf) - h->len, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	check(n >= 0 || errno == EFBIG, "read: %s", strerror(errno));
	settle(h);
	h->eof = !n;
	if (n > 0)
		h->len += n;
	step(h);
}

static void forward(int c, int s, unsigned int *splices)
{
	static struct half h[2];
	int i;

	for (i = 0; i < 2; i++)
		h[i] = (struct half) { .from = i ? s : c, .to = i ? c : s, .other = &h[!i],
				       .splices = splices };
	while (!h[0].eof || !h[1].eof) {
		struct pollfd p[2] = { { .fd = h[0].eof ? -1 : c, .events = POLLIN },
				       { .fd = h[1].eof ? -1 : s, .events = POLLIN } };

		check(poll(p, 2, 20000) > 0, "nothing happens");
		for (i = 0; i < 2; i++) {
			if (p[i].revents)
				readable(&h[i]);
			if (h[i].eof)
				shutdown(h[i].to, SHUT_WR);
			/* what a write has met */
			step(&h[!i]);
		}
	}
}

/* What goes through it. Message @n of a connection is always the same. */

static size_t length_of(unsigned int n)
{
	return n % 67 == 33 ? 300000 : n % 5 ? n * 7919 % 3000 : 0;
}

/* The alphabet backwards, again and again. Bodies are pieces of it: to print them byte by byte
 * takes an emulated CPU half of the time of a case.
 */
static char letters[26 * 128];

static void make_letters(void)
{
	size_t i;

	for (i = 0; i < sizeof(letters); i++)
		letters[i] = 'z' - i % 26;
}

/* Writes @len bytes of the body of message @n, of which @left are to come. */
static void put_body(FILE *f, unsigned int n, size_t left, size_t len)
{
	size_t at = 25 - (n + left) % 26, part;

	for (; len; len -= part, at = (at + part) % 26) {
		part = len < sizeof(letters) - at ? len : sizeof(letters) - at;
		fwrite(letters + at, 1, part, f);
	}
}

static void put(FILE *f, unsigned int n, const char *first)
{
	size_t len = length_of(n), part;
	bool chunked = n % 3 == 1;

	fprintf(f, "%s %u\r\n", first, n);
	if (chunked)
		fprintf(f, "Transfer-Encoding: chunked\r\n\r\n");
	else
		fprintf(f, "Content-Length: %zu\r\n\r\n", len);
	for (; len; len -= part) {
		part = chunked && len > 1000 ? len / 2 : len;
		if (chunked)
			fprintf(f, "%zx\r\n", part);
		put_body(f, n, len, part);
		if (chunked)
			fprintf(f, "\r\n");
	}
	if (chunked)
		fprintf(f, "0\r\n\r\n");
	check(!fflush(f), "%s", strerror(errno));
}

static char *made(unsigned int n, const char *first, size_t *len)
{
	char *text;
	FILE *f = open_memstream(&text, len);

	put(f, n, first);
	fclose(f);
	return text;
}

/* Reads message @n, and that it is that, to the byte. */
static void get(int fd, unsigned int n, const char *first)
{
	static __thread char buf[400000];
	size_t len;
	char *text = made(n, first, &len);

	check(recv(fd, buf, len, MSG_WAITALL) == (ssize_t)len && !memcmp(buf, text, len),
	      "%s %u is another", first, n);
	free(text);
}

struct peer {
	int fd;
	sem_t ahead;	/* requests that may be on their way */
};

static void give(int fd, unsigned int n, const char *first)
{
	size_t len;
	char *text = made(n, first, &len);

	check(send(fd, text, len, MSG_NOSIGNAL) == (ssize_t)len, "%s", strerror(errno));
	free(text);
}

static void *client_sends(void *arg)
{
	struct peer *p = arg;
	unsigned int n;

	for (n = 0; n < requests; n++) {
		sem_wait(&p->ahead);
		give(p->fd, n, "POST");
	}
	return NULL;
}

static void *client_reads(void *arg)
{
	struct peer *p = arg;
	unsigned int n;

	for (n = 0; n < requests; n++) {
		get(p->fd, n + 1, "HTTP");
		sem_post(&p->ahead);
	}
	shutdown(p->fd, SHUT_WR);
	return NULL;
}

static void *serve(void *arg)
{
	struct peer *p = arg;
	unsigned int n;

	for (n = 0; n < requests; n++) {
		get(p->fd, n, "POST");
		give(p->fd, n + 1, "HTTP");
	}
	shutdown(p->fd, SHUT_WR);
	return NULL;
}

static unsigned int connection(unsigned int ahead)
{
	void *(*const threads[])(void *) = { client_sends, client_reads, serve };
	struct peer client, server;
	unsigned int splices = 0, i;
	pthread_t t[3];
	struct relay r;

	relay_open(&r, AF_INET, AF_INET);
	client.fd = r.c;
	server.fd = r.s;
	sem_init(&client.ahead, 0, ahead);
	for (i = 0; i < 3; i++)
		check(!pthread_create(&t[i], NULL, threads[i], i < 2 ? &client : &server),
		      "no thread");
	forward(r.p, r.q, &splices);
	for (i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	close(r.c), close(r.p), close(r.q), close(r.s);
	return splices;
}

static void pipelined(unsigned int ahead)
{
	unsigned int splices = 0, i;

	if (getenv("SHORT"))
		requests = 40;
	make_letters();
	for (i = 0; i < 5; i++)
		splices += connection(ahead);
	check(splices > 100, "%u splices", splices);
}

static void pipelined_1(void)
{
	pipelined(1);
}

static void pipelined_2(void)
{
	pipelined(2);
}

static void pipelined_8(void)
{
	pipelined(8);
}

static void pipelined_64(void)
{
	pipelined(64);
}

const struct sock_case forward_cases[] = {
	{ "HTTP-forwarder-1", pipelined_1 },
	{ "HTTP-forwarder-2", pipelined_2 },
	{ "HTTP-forwarder-8", pipelined_8 },
	{ "HTTP-forwarder-64", pipelined_64 },
	{ NULL }
};
