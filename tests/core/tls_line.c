/* See tls_line.h. */
#include "tests/core/tls_line.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void pair(int *a, int *b)
{
	int fds[2];

	assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
	*a = fds[0];
	*b = fds[1];
}

void line_open(struct line *l, const uint8_t *dialer_key, const uint8_t *listener_key)
{
	int middle[2];

	memset(l, 0, sizeof *l);
	pair(&l->fd[DIALER], &middle[DIALER]);
	pair(&l->fd[LISTENER], &middle[LISTENER]);
	for (int end = 0; end < 2; end++)
		l->wires[end] = (struct wire){.from = middle[end],
					      .to = middle[1 - end],
					      .limit = SIZE_MAX,
					      .flip = SIZE_MAX,
					      .bits = 1};
	assert(tls_new(&l->tls[DIALER], l->fd[DIALER], dialer_key, true, TLS_RECORDS) == TUTTI_OK);
	assert(tls_new(&l->tls[LISTENER], l->fd[LISTENER], listener_key, false, 1) == TUTTI_OK);
}

void line_close(struct line *l)
{
	for (int end = 0; end < 2; end++) {
		tls_free(l->tls[end]);
		if (l->fd[end] >= 0)
			close(l->fd[end]);
		close(l->wires[end].from);
		free(l->wires[end].seen);
	}
}

static void capture(struct wire *w)
{
	ssize_t n;

	for (;;) {
		if (w->room < w->bytes + 65536) {
			w->room = 2 * w->room + 131072;
			w->seen = realloc(w->seen, w->room);
			assert(w->seen);
		}
		n = recv(w->from, w->seen + w->bytes, w->room - w->bytes, MSG_DONTWAIT);
		if (n <= 0)
			return;
		if (w->flip - w->bytes < (size_t)n)
			w->seen[w->flip] ^= w->bits;
		w->bytes += (size_t)n;
	}
}

size_t line_pass(struct line *l, size_t most)
{
	size_t moved = 0;

	for (int end = 0; end < 2; end++) {
		struct wire *w = &l->wires[end];
		size_t bytes;
		ssize_t n;
		capture(w);
		assert(w->passed <= w->limit);
		bytes = (w->bytes < w->limit ? w->bytes : w->limit) - w->passed;
		bytes = bytes < most ? bytes : most;
		n = bytes == 0
			    ? 0
			    : send(w->to, w->seen + w->passed, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0) {
			w->passed += (size_t)n;
			moved += (size_t)n;
		}
		if (w->is_cut && w->passed == (w->bytes < w->limit ? w->bytes : w->limit))
			shutdown(w->to, SHUT_WR);
	}
	return moved;
}

static void shake_one(struct line *l, int end)
{
	if (l->is_up[end] || l->error[end])
		return;
	if (tls_handshake(l->tls[end]) == 0)
		l->is_up[end] = true;
	else if (errno != EAGAIN)
		l->error[end] = errno;
}

bool line_shake(struct line *l, size_t chunk)
{
	do {
		shake_one(l, DIALER);
		shake_one(l, LISTENER);
	} while (line_pass(l, chunk) > 0);
	return l->is_up[DIALER] && l->is_up[LISTENER];
}

void line_up(struct line *l)
{
	static const uint8_t key[TUTTI_KEY_BYTES] = "a key of both";

	line_open(l, key, key);
	assert(line_shake(l, SIZE_MAX));
}

void line_say(struct line *l, int end, const void *bytes, size_t count)
{
	for (size_t said = 0; said < count;) {
		struct iovec iov = {(char *)(uintptr_t)bytes + said, count - said};
		ssize_t n = tls_send(l->tls[end], &iov, 1);
		assert(n >= 0 || errno == EAGAIN);
		said += n > 0 ? (size_t)n : 0;
		line_pass(l, SIZE_MAX);
	}
}

ssize_t line_hear(struct line *l, int end, void *to, size_t bytes)
{
	struct iovec iov = {to, bytes};

	line_pass(l, SIZE_MAX);
	return tls_recv(l->tls[end], &iov, 1);
}

void line_cut(struct line *l, int end)
{
	close(l->fd[end]);
	l->fd[end] = -1;
	l->wires[end].is_cut = true;
	line_pass(l, SIZE_MAX);
}
