/* See capture.h. */
#include "tests/tls/capture.h"

#include <assert.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

#define STREAMS_MOST 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream streams[STREAMS_MOST];
static int stream_count;

ssize_t __real_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

/* 0: no port of TCP. */
static uint16_t port_of(int fd, int (*which)(int, struct sockaddr *, socklen_t *))
{
	struct sockaddr_storage address;
	socklen_t bytes = sizeof address;

	if (which(fd, (struct sockaddr *)&address, &bytes) != 0)
		return 0;
	if (address.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&address)->sin6_port);
	return address.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&address)->sin_port) : 0;
}

static struct stream *stream_of(int fd)
{
	uint16_t from = port_of(fd, getsockname), to = from ? port_of(fd, getpeername) : 0;

	if (to == 0)
		return NULL;
	for (int i = 0; i < stream_count; i++)
		if (streams[i].from == from && streams[i].to == to)
			return &streams[i];
	assert(stream_count < STREAMS_MOST);
	streams[stream_count] = (struct stream){.from = from, .to = to};
	return &streams[stream_count++];
}

static void note(struct stream *s, const void *bytes, size_t count)
{
	if (s->room < s->count + count) {
		s->room = 2 * s->room + count;
		s->bytes = realloc(s->bytes, s->room);
		assert(s->bytes);
	}
	memcpy(s->bytes + s->count, bytes, count);
	s->count += count;
}

static void note_all(int fd, const struct iovec *iov, size_t places, ssize_t bytes)
{
	struct stream *s;
	size_t left = bytes > 0 ? (size_t)bytes : 0;

	pthread_mutex_lock(&lock);
	s = stream_of(fd);
	for (size_t i = 0; s && i < places && left > 0; i++) {
		size_t step = iov[i].iov_len < left ? iov[i].iov_len : left;
		note(s, iov[i].iov_base, step);
		left -= step;
	}
	pthread_mutex_unlock(&lock);
}

ssize_t __wrap_send(int fd, const void *data, size_t bytes, int flags)
{
	struct iovec iov = {(void *)(uintptr_t)data, bytes};
	ssize_t n = __real_send(fd, data, bytes, flags);

	note_all(fd, &iov, 1, n);
	return n;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t n = __real_sendmsg(fd, message, flags);

	note_all(fd, message->msg_iov, message->msg_iovlen, n);
	return n;
}

void capture_begin(void)
{
	for (int i = 0; i < stream_count; i++)
		free(streams[i].bytes);
	stream_count = 0;
}

const struct stream *capture_streams(int *count)
{
	*count = stream_count;
	return streams;
}

bool capture_has(const void *bytes, size_t count)
{
	for (int i = 0; i < stream_count; i++)
		if (streams[i].count > 0 &&
		    memmem(streams[i].bytes, streams[i].count, bytes, count))
			return true;
	return false;
}
