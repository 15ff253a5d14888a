/* Attackers, one by one. None of their calls blocks, and none of their failures matters: being
 * refused is what they are for. */
#include "tests/security/flood.h"

#include "core/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LOOK_EVERY 16 /* attackers, between two looks for doors */
#define CALL_MS    50 /* where no process accepts, the kernel soon lets none in */

static uint64_t next_random(struct flood *s)
{
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return s->random;
}

static int call_port(int port)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd outcome = {.fd = fd, .events = POLLOUT};

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd >= 0 && (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 ||
			(errno == EINPROGRESS && poll(&outcome, 1, CALL_MS) == 1 &&
			 !(outcome.revents & (POLLERR | POLLHUP)))))
		return fd;
	close(fd);
	return -1;
}

static int call_name(const char *name)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	size_t n = strlen(name);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(to.sun_path + 1, name, n < sizeof to.sun_path - 1 ? n : sizeof to.sun_path - 1);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&to,
			       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void say(int fd, const void *bytes, size_t n)
{
	ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);

	(void)sent;
}

static void make_noise(struct flood *s, uint8_t *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)next_random(s);
}

/* What is no secret of the protocol: its first words. */
static void say_hello(struct flood *s, int fd)
{
	uint8_t hello[AUTH_HELLO_BYTES] = "TUTTIA01";

	make_noise(s, hello + 8, sizeof hello - 8);
	say(fd, hello, sizeof hello);
}

static void say_giants(struct flood *s, int fd)
{
	uint8_t bytes[256];

	memset(bytes, 0xff, sizeof bytes);
	if (next_random(s) % 2)
		memcpy(bytes, "TUTTIA01", 8);
	bytes[AUTH_HELLO_BYTES] = 2;
	say(fd, bytes, sizeof bytes);
}

/* A hello of shm's form, as long as that has to be, and more descriptors than it may have. */
static void pass_descriptors(struct flood *s, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control = {0};
	uint32_t hello[12] = {0x31306d73u, 1 + (uint32_t)(next_random(s) % 2), 1, 0, 0};
	struct iovec payload = {.iov_base = hello, .iov_len = sizeof hello};
	struct msghdr message = {.msg_iov = &payload,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof control.bytes};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	int fds[4] = {2, 2, 2, 2};

	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof fds);
	memcpy(CMSG_DATA(head), fds, sizeof fds);
	if (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
}

/* Returns whether it stays. */
static bool behave(struct flood *s, int fd, enum manner manner)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a browser of "
				   "average length, for a hello has 72 bytes\r\n\r\n";
	struct linger at_once = {1, 0};
	uint8_t noise[2048];
	size_t n = 1 + next_random(s) % sizeof noise;

	switch (manner) {
	case MANNER_SCAN:
		return false;
	case MANNER_RESET:
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
		return false;
	case MANNER_HTTP:
		say(fd, http, sizeof http - 1);
		return true;
	case MANNER_NOISE:
		make_noise(s, noise, n);
		say(fd, noise, n);
		return true;
	case MANNER_GIANT:
		say_giants(s, fd);
		return true;
	case MANNER_DRIP:
		say(fd, "TUTTIA01", 1 + next_random(s) % 8);
		return true;
	case MANNER_GUESS:
		say_hello(s, fd);
		return true;
	case MANNER_PASS:
		pass_descriptors(s, fd);
		return true;
	case MANNER_SILENT:
	case MANNERS:
		break;
	}
	return true;
}

/* An attacker that was answered guesses the proof, and says with it all that a rank would. */
static void guess(struct flood *s)
{
	uint8_t answer[AUTH_ANSWER_BYTES], words[AUTH_PROOF_BYTES + 48];

	for (int i = 0; i < FLOOD_CONNECTIONS; i++) {
		struct attacker *one = &s->connections[i];
		if (one->fd < 0 || one->manner != MANNER_GUESS || one->has_guessed ||
		    recv(one->fd, answer, sizeof answer, MSG_DONTWAIT) != sizeof answer)
			continue;
		make_noise(s, words, sizeof words);
		say(one->fd, words, sizeof words);
		one->has_guessed = true;
	}
}

void flood_begin(struct flood *s, uint64_t seed)
{
	memset(s, 0, sizeof *s);
	s->random = seed | 1;
	for (int i = 0; i < FLOOD_CONNECTIONS; i++)
		s->connections[i].fd = -1;
}

void flood_step(struct flood *s, const pid_t *pids, int n)
{
	struct attacker *place = &s->connections[s->next];
	const struct target *t;
	enum manner manner;
	int fd;

	if (s->calls++ % LOOK_EVERY == 0)
		s->count = targets_find(pids, n, s->targets);
	guess(s);
	if (s->count == 0)
		return;
	t = &s->targets[next_random(s) % (unsigned)s->count];
	manner = (enum manner)(next_random(s) % (t->is_unix ? MANNERS : MANNER_PASS));
	fd = t->is_unix ? call_name(t->name) : call_port(t->port);
	if (fd < 0)
		return;
	s->made[manner]++;
	*(t->is_unix ? &s->local : &s->tcp) += 1;
	if (!behave(s, fd, manner)) {
		close(fd);
		return;
	}
	if (place->fd >= 0)
		close(place->fd);
	*place = (struct attacker){fd, manner, false};
	s->next = (s->next + 1) % FLOOD_CONNECTIONS;
}

void flood_end(struct flood *s)
{
	for (int i = 0; i < FLOOD_CONNECTIONS; i++) {
		if (s->connections[i].fd >= 0)
			close(s->connections[i].fd);
		s->connections[i].fd = -1;
	}
}

unsigned flood_made(const struct flood *s)
{
	return s->tcp + s->local;
}
