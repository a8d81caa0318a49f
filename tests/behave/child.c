// SPDX-License-Identifier: GPL-2.0
/*
 * The transcript of one run, and the child that writes it, under a watchdog.
 */
#include "behave.h"

#include <dirent.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "child.h"

struct shared *sh;

bool child_init(void)
{
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return sh != MAP_FAILED;
}

void say(const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	uint32_t at;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line) - 1, fmt, ap);
	va_end(ap);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	at = __atomic_fetch_add(&sh->len, n, __ATOMIC_SEQ_CST);
	if (at + n < sizeof(sh->text))
		memcpy(sh->text + at, line, n);
}

void where(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sh->where, sizeof(sh->where), fmt, ap);
	va_end(ap);
	__atomic_fetch_add(&sh->steps, 1, __ATOMIC_RELAXED);
}

static void verdict(int *flag, const char *fmt, va_list ap)
{
	if (!__atomic_exchange_n(flag, 1, __ATOMIC_SEQ_CST))
		vsnprintf(sh->why, sizeof(sh->why), fmt, ap);
}

void fail(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	verdict(&sh->failed, fmt, ap);
	va_end(ap);
	_exit(3);
}

void skip(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	verdict(&sh->skipped, fmt, ap);
	va_end(ap);
	_exit(4);
}

long say_ret(const char *what, long ret)
{
	int err = errno;

	if (ret == -1)
		say("%s = -1 %s", what, strerrorname_np(err));
	else
		say("%s = %ld", what, ret);
	errno = err;
	return ret;
}

long say_ret_or(const char *what, long ret, int err, const char *why)
{
	if (ret >= 0 || errno == err)
		say("%s = done, or %s: %s", what, strerrorname_np(err), why);
	else
		say_ret(what, ret);
	return ret;
}

long say_bytes(const char *what, long ret, const void *buf)
{
	const unsigned char *p = buf;
	char text[200];
	int n = 0, err = errno;

	if (ret <= 0) {
		errno = err;
		return say_ret(what, ret);
	}
	if (ret > 40) {
		say("%s = %ld, sum %016llx", what, ret, (unsigned long long)sum(buf, ret));
		return ret;
	}
	for (long i = 0; i < ret; i++)
		n += sprintf(text + n, p[i] >= ' ' && p[i] < 127 ? "%c" : "\\%02x", p[i]);
	say("%s = %ld \"%s\"", what, ret, text);
	return ret;
}

void say_poll(const char *what, int revents)
{
	static const struct { int bit; const char *name; } bits[] = {
		{ POLLIN, "IN" }, { POLLPRI, "PRI" }, { POLLOUT, "OUT" }, { POLLERR, "ERR" },
		{ POLLHUP, "HUP" }, { POLLNVAL, "NVAL" }, { POLLRDNORM, "RDNORM" },
		{ POLLRDBAND, "RDBAND" }, { POLLWRNORM, "WRNORM" }, { POLLWRBAND, "WRBAND" },
		{ POLLRDHUP, "RDHUP" },
	};
	char text[128] = "";

	for (size_t i = 0; i < ARRAY_SIZE(bits); i++) {
		if (revents & bits[i].bit) {
			strcat(text, " ");
			strcat(text, bits[i].name);
		}
	}
	say("%s:%s", what, *text ? text : " nothing");
}

const char *sig_name(int sig)
{
	return sig > 0 && sig < 32 ? sigabbrev_np(sig) : sig >= SIGRTMIN ? "RT" : "none";
}

void proof_record(bool found, uint64_t ring, uint64_t tcp)
{
	sh->proofs++;
	sh->pairs += found;
	sh->ring += ring;
	sh->tcp += tcp;
}

/* Prints one file of every thread of @pid: where a hung case sleeps. */
static void show_stuck(int pid)
{
	char path[300], line[512];
	struct dirent *d;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		static const char *const files[] = { "syscall", "stack" };

		if (d->d_name[0] == '.')
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
			FILE *f;

			snprintf(path, sizeof(path), "/proc/%d/task/%s/%s", pid, d->d_name,
				 files[i]);
			f = fopen(path, "r");
			while (f && fgets(line, sizeof(line), f))
				printf("#   thread %s %s: %s", d->d_name, files[i], line);
			if (f)
				fclose(f);
		}
	}
	if (dir)
		closedir(dir);
}

const char *child_run(void (*run)(const void *arg), const void *arg, int limit,
		      bool by_progress, char *msg, size_t msglen)
{
	struct timespec ts = { .tv_sec = limit };
	unsigned int steps = 0, now;
	sigset_t chld;
	int pid, status, hung = 0;

	memset(sh, 0, sizeof(*sh));
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, NULL);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigprocmask(SIG_UNBLOCK, &chld, NULL);
		run(arg);
		sh->done = 1;
		_exit(0);
	}
	setpgid(pid, pid);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (sigtimedwait(&chld, NULL, &ts) < 0 && errno == EAGAIN) {
			now = __atomic_load_n(&sh->steps, __ATOMIC_RELAXED);
			if (by_progress && now != steps) {
				steps = now;
				continue;
			}
			hung = 1;
			show_stuck(pid);
			kill(-pid, SIGKILL);
			waitpid(pid, &status, 0);
			break;
		}
	}
	kill(-pid, SIGKILL);	/* children that the case left behind */
	if (sh->skipped)
		return NULL;
	if (hung) {
		snprintf(msg, msglen, "hung in \"%s\"", sh->where);
		return msg;
	}
	if (sh->failed) {
		snprintf(msg, msglen, "%s", sh->why);
		return msg;
	}
	if (WIFSIGNALED(status)) {
		snprintf(msg, msglen, "died by SIG%s in \"%s\"", sig_name(WTERMSIG(status)),
			 sh->where);
		return msg;
	}
	if (!sh->done) {
		snprintf(msg, msglen, "ended early in \"%s\"", sh->where);
		return msg;
	}
	return NULL;
}

void show_difference(const char *plain, const char *paired)
{
	const char *a = plain, *b = paired;
	int line = 1;

	while (*a && *b) {
		size_t na = strcspn(a, "\n"), nb = strcspn(b, "\n");

		if (na != nb || memcmp(a, b, na))
			break;
		a += na + (a[na] == '\n');
		b += nb + (b[nb] == '\n');
		line++;
	}
	printf("#   line %d plain:  %.*s\n", line, (int)strcspn(a, "\n"), a);
	printf("#   line %d paired: %.*s\n", line, (int)strcspn(b, "\n"), b);
}
