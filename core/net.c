/* The bytes of every socket, moved before a deadline, and waiting for it; Unix sockets, and
 * descriptors passed over them. How TCP sockets come about is in net_tcp.c. */
#include "core/net.h"

#include "core/cancel.h"
#include "core/clock.h"
#include "core/resource_limits.h"
#include "core/status.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define POLL_MAX_MS  3600000
#define PAUSE_MAX_MS 50

static int net_one_poll(int fd, short events, uint64_t deadline_ns)
{
	struct pollfd p = {.fd = fd, .events = events};
	return poll(&p, 1, cancel_poll_ms(deadline_ns, POLL_MAX_MS));
}

tutti_status net_wait(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		int rc = net_one_poll(fd, events, deadline_ns);
		if (rc > 0)
			return TUTTI_OK;
		if (rc < 0 && errno != EINTR)
			return fail_errno("cannot wait for a socket (poll)");
		if (rc == 0 && clock_now_ns() >= cancel_deadline(deadline_ns))
			return fail(
				TUTTI_ERR_TIMEOUT,
				"the other end of a connection did not answer before the deadline");
	}
}

bool net_has_caller(int listen_fd)
{
	return net_one_poll(listen_fd, POLLIN, 0) > 0;
}

void net_pause(int attempt, uint64_t deadline_ns)
{
	int ms = attempt < 6 ? 1 << attempt : PAUSE_MAX_MS;
	poll(NULL, 0, cancel_poll_ms(deadline_ns, ms));
}

bool net_is_gone(int error)
{
	switch (error) {
	case EPIPE:
	case ECONNRESET:
	case ETIMEDOUT:
	/* Another program has closed this end (`ss -K`, a debugger). */
	case ECONNABORTED:
	case ENOTCONN:
		return true;
	default:
		return false;
	}
}

/* After a call that moved nothing, with its errno; what: "read from a socket". OK: try again. */
static tutti_status net_again(int fd, short events, const char *what, uint64_t deadline_ns)
{
	if (errno == EINTR)
		return TUTTI_OK;
	if (errno == EAGAIN)
		return net_wait(fd, events, deadline_ns);
	if (net_is_gone(errno))
		return fail(TUTTI_ERR_PEER, "the other end of a connection went away (%s)",
			    strerror(errno));
	return fail_errno("cannot %s", what);
}

tutti_status net_send_all(int fd, const void *data, size_t bytes, uint64_t deadline_ns)
{
	const char *from = data;

	while (bytes) {
		ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
		if (n < 0) {
			TRY(net_again(fd, POLLOUT, "write to a socket (send)", deadline_ns));
			continue;
		}
		from += n;
		bytes -= (size_t)n;
	}
	return TUTTI_OK;
}

tutti_status net_recv_all(int fd, void *data, size_t bytes, uint64_t deadline_ns)
{
	char *to = data;
	size_t got = 0;

	while (got < bytes) {
		ssize_t n = recv(fd, to + got, bytes - got, 0);
		if (n == 0)
			return fail(TUTTI_ERR_PEER,
				    "the other end closed the connection after %zu of %zu bytes",
				    got, bytes);
		if (n < 0)
			TRY(net_again(fd, POLLIN, "read from a socket (recv)", deadline_ns));
		else
			got += (size_t)n;
	}
	return TUTTI_OK;
}

/* Unix sockets in the abstract namespace: which process is at the other end, and descriptors passed
 * along. */

#define FDS_MAX   64
#define RINGS_MAX 64

static tutti_status net_unix_address(const char *name, struct sockaddr_un *address,
				     socklen_t *length)
{
	size_t n = strlen(name);

	memset(address, 0, sizeof *address);
	address->sun_family = AF_UNIX;
	if (n == 0 || n > sizeof address->sun_path - 1)
		return fail(TUTTI_ERR_INVALID,
			    "the name of a Unix socket has 1 to %zu bytes, not %zu",
			    sizeof address->sun_path - 1, n);
	memcpy(address->sun_path + 1, name, n); /* after a zero byte: no file */
	*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
	return TUTTI_OK;
}

static tutti_status net_unix_socket(int *fd)
{
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	return *fd >= 0 ? TUTTI_OK : fail_errno("cannot make a Unix socket (socket)");
}

tutti_status net_unix_listen(const char *name, int backlog, int *fd)
{
	struct sockaddr_un address;
	socklen_t length = 0; /* as gcc does not see that fail() never returns OK */
	int s;

	TRY(net_unix_address(name, &address, &length));
	TRY(net_unix_socket(&s));
	const char *call = bind(s, (struct sockaddr *)&address, length) < 0 ? "bind"
			   : listen(s, backlog) < 0                         ? "listen"
									    : NULL;
	if (call) {
		fail_errno("cannot listen on the Unix socket @%s (%s)", name, call);
		close(s);
		return TUTTI_ERR_SYSTEM;
	}
	*fd = s;
	return TUTTI_OK;
}

/* On this machine connecting does not wait: it is refused, or the backlog is full (EAGAIN), or
 * done.
 */
tutti_status net_unix_connect(const char *name, int *fd)
{
	struct sockaddr_un address;
	socklen_t length = 0; /* as gcc does not see that fail() never returns OK */
	int s, error;

	TRY(net_unix_address(name, &address, &length));
	TRY(net_unix_socket(&s));
	do
		error = connect(s, (struct sockaddr *)&address, length) < 0 ? errno : 0;
	while (error == EINTR);
	if (error == 0) {
		*fd = s;
		return TUTTI_OK;
	}
	close(s);
	errno = error;
	if (error == ECONNREFUSED || error == EAGAIN)
		return TUTTI_IN_PROGRESS;
	return fail_errno("cannot connect to the Unix socket @%s (connect)", name);
}

tutti_status net_unix_doorbell(const char *name, int *fd)
{
	struct sockaddr_un address;
	socklen_t length = 0; /* as gcc does not see that fail() never returns OK */
	int s;

	TRY(net_unix_address(name, &address, &length));
	s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return fail_errno("cannot make a Unix socket (socket)");
	if (bind(s, (struct sockaddr *)&address, length) < 0) {
		fail_errno("cannot listen on the Unix socket @%s for wake-ups (bind)", name);
		close(s);
		return TUTTI_ERR_SYSTEM;
	}
	*fd = s;
	return TUTTI_OK;
}

/* A doorbell that is full rings already, and one that is gone is not listened to. */
void net_unix_ring(int fd, const char *name)
{
	struct sockaddr_un address;
	socklen_t length = 0;

	if (net_unix_address(name, &address, &length) != TUTTI_OK)
		return;
	ssize_t n = sendto(fd, "", 1, MSG_NOSIGNAL, (struct sockaddr *)&address, length);
	(void)n;
}

/* So many that a flood of them holds up no rank. */
void net_unix_quiet(int fd)
{
	char byte;

	for (int i = 0; i < RINGS_MAX && recv(fd, &byte, 1, 0) >= 0; i++)
		;
}

tutti_status net_unix_check(int fd, int *pid)
{
	struct ucred peer;
	socklen_t length = sizeof peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0)
		return fail_errno("cannot ask which process is at the other end of a Unix socket "
				  "(getsockopt, SO_PEERCRED)");
	if (peer.uid != geteuid())
		return fail(
			TUTTI_ERR_AUTH,
			"process %d at the other end of a Unix socket belongs to user %u, not to "
			"user %u",
			(int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
	if (pid)
		*pid = (int)peer.pid;
	return TUTTI_OK;
}

union fds_message {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

static tutti_status net_check_fds(size_t bytes, int n)
{
	if (bytes == 0 || n < 0 || n > FDS_MAX)
		return fail(TUTTI_ERR_INVALID,
			    "a message with descriptors has at least 1 byte and at most %d "
			    "descriptors, not %zu and %d",
			    FDS_MAX, bytes, n);
	return TUTTI_OK;
}

tutti_status net_send_fds(int fd, const void *data, size_t bytes, const int *fds, int n,
			  uint64_t deadline_ns)
{
	union fds_message control = {0};
	struct iovec payload = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &payload, .msg_iovlen = 1};
	ssize_t sent;

	TRY(net_check_fds(bytes, n));
	if (n > 0) {
		struct cmsghdr *header;
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE((size_t)n * sizeof *fds);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN((size_t)n * sizeof *fds);
		memcpy(CMSG_DATA(header), fds, (size_t)n * sizeof *fds);
	}
	while ((sent = sendmsg(fd, &message, MSG_NOSIGNAL)) < 0)
		TRY(net_again(fd, POLLOUT, "pass descriptors over a Unix socket (sendmsg)",
			      deadline_ns));
	/* The descriptors went with the first byte. */
	return net_send_all(fd, (const char *)data + sent, bytes - (size_t)sent, deadline_ns);
}

static void net_unix_close_all(const int *fds, int n)
{
	for (int i = 0; i < n; i++)
		close(fds[i]);
}

/* How many descriptors came with message; they are ours from now on. */
static int net_take_fds(struct msghdr *message, int fds[FDS_MAX])
{
	int n = 0;

	for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		size_t bytes = h->cmsg_len - CMSG_LEN(0);
		memcpy(fds + n, CMSG_DATA(h), bytes);
		n += (int)(bytes / sizeof *fds);
	}
	return n;
}

tutti_status net_recv_fds(int fd, void *data, size_t bytes, int *fds, int n, uint64_t deadline_ns)
{
	union fds_message control;
	struct iovec payload = {.iov_base = data, .iov_len = bytes};
	struct msghdr message = {.msg_iov = &payload, .msg_iovlen = 1};
	char limit_text[RESOURCE_LIMIT_BYTES];
	int got_fds[FDS_MAX], got;
	ssize_t received;
	tutti_status status;

	TRY(net_check_fds(bytes, n));
	do {
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof control.bytes;
		received = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
		if (received < 0)
			TRY(net_again(fd, POLLIN,
				      "receive descriptors over a Unix socket (recvmsg)",
				      deadline_ns));
	} while (received < 0);
	if (received == 0)
		return fail(TUTTI_ERR_PEER,
			    "the other end closed a Unix socket before it passed %d "
			    "descriptors",
			    n);
	got = net_take_fds(&message, got_fds);
	status = net_recv_all(fd, (char *)data + received, bytes - (size_t)received, deadline_ns);
	if (status == TUTTI_OK && (message.msg_flags & MSG_CTRUNC) && got < n)
		status = fail(TUTTI_ERR_SYSTEM, "only %d of %d descriptors could be received%s",
			      got, n, resource_limit_text(EMFILE, limit_text));
	else if (status == TUTTI_OK && got != n)
		status = fail(TUTTI_ERR_MISMATCH, "%d descriptors came where %d were expected", got,
			      n);
	if (status == TUTTI_OK)
		memcpy(fds, got_fds, (size_t)n * sizeof *fds);
	else
		net_unix_close_all(got_fds, got);
	return status;
}
