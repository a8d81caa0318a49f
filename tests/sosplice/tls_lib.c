// SPDX-License-Identifier: GPL-2.0
#include <netinet/tcp.h>

#include "tls.h"

int set_keys(int fd, int what, int version, char key)
{
	struct tls12_crypto_info_aes_gcm_128 info = {
		.info = { .version = version, .cipher_type = TLS_CIPHER_AES_GCM_128 },
	};

	memset(info.key, key, sizeof(info.key));
	memset(info.iv, key + 1, sizeof(info.iv));
	memset(info.salt, key + 2, sizeof(info.salt));
	return setsockopt(fd, SOL_TLS, what, &info, sizeof(info)) ? errno : 0;
}

int set_ulp(int fd)
{
	return setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 4) ? errno : 0;
}

bool tls_is_there(void)
{
	int client, server, err;

	connect_pair(AF_INET, &client, &server);
	err = set_ulp(client);
	close(client);
	close(server);
	return err != ENOENT;
}

void secure(int a, int b, int version)
{
	if (set_ulp(a) == ENOENT)
		exit(SKIPPED);
	check(!set_ulp(b), "%s", strerror(errno));
	check(!set_keys(a, TLS_TX, version, 'a') && !set_keys(b, TLS_RX, version, 'a'), "%s",
	      strerror(errno));
	check(!set_keys(b, TLS_TX, version, 'b') && !set_keys(a, TLS_RX, version, 'b'), "%s",
	      strerror(errno));
}

void tls_open(struct relay *r, int which, int version)
{
	relay_open(r, AF_INET, AF_INET);
	if (which & CLIENT)
		secure(r->c, r->p, version);
	if (which & SERVER)
		secure(r->q, r->s, version);
}

int try_splice(int from, int to)
{
	struct splice s = { .sp_fd = to };

	return socksplice_splice(from, &s) ? errno : 0;
}

void send_record(int fd, unsigned char type, const void *data, size_t len)
{
	char control[CMSG_SPACE(1)] = "";
	struct iovec v = { .iov_base = (void *)data, .iov_len = len };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_TLS;
	c->cmsg_type = TLS_SET_RECORD_TYPE;
	c->cmsg_len = CMSG_LEN(1);
	*CMSG_DATA(c) = type;
	check(sendmsg(fd, &m, 0) == (ssize_t)len, "%s", strerror(errno));
}

void want_record(int fd, unsigned char type, const void *data, size_t len)
{
	char control[CMSG_SPACE(1)] = "", buf[RECORD];
	struct iovec v = { .iov_base = buf, .iov_len = sizeof(buf) };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	ssize_t got = recvmsg(fd, &m, 0);
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	check(got == (ssize_t)len && !memcmp(buf, data, len), "%zd bytes: %s", got,
	      strerror(errno));
	check(c && c->cmsg_type == TLS_GET_RECORD_TYPE && *CMSG_DATA(c) == type, "of type %d",
	      c ? *CMSG_DATA(c) : -1);
}

void has_ended(int fd)
{
	check(socksplice_unsplice(fd) && errno == ENOTCONN, "it lives");
	check(!so_error(fd), "an error");
}

void wait_end(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	check(poll(&p, 1, 20000) == 1, "it does not end");
}

pid_t write_all(int fd, uint64_t len)
{
	static const size_t sizes[] = { 1, RECORD, 100, RECORD + 1, 1448, 65536, 5000 };
	pid_t pid = fork();
	uint64_t pos = 0;
	size_t i;

	if (pid)
		return pid;
	for (i = 0; pos < len; i = (i + 1) % 7) {
		size_t n = sizes[i] < len - pos ? sizes[i] : len - pos;

		stream_write(fd, pos, n);
		pos += n;
	}
	_exit(0);
}

void wait_ok(pid_t pid)
{
	int status;

	check(waitpid(pid, &status, 0) == pid && !status, "the other end failed");
}

void reset(int fd)
{
	const struct linger now = { .l_onoff = 1 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}
