/* A socket with an abstract name, to which other users' words do not count. */
#include "words.h"

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct words words_open(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct words words = {.fd = -1};
	uint64_t bits;
	int yes = 1;

	if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits)
		return words;
	snprintf(words.name, sizeof words.name, "tuttirun-words-%016llx", (unsigned long long)bits);
	memcpy(address.sun_path + 1, words.name, strlen(words.name));
	words.fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (words.fd < 0)
		return words;
	if (setsockopt(words.fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0 &&
	    bind(words.fd, (struct sockaddr *)&address,
		 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(words.name))) == 0)
		return words;
	close(words.fd);
	words.fd = -1;
	return words;
}

static int words_is_ours(struct msghdr *message, struct word_from *from)
{
	const struct cmsghdr *head = CMSG_FIRSTHDR(message);
	struct ucred sender;

	if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_CREDENTIALS)
		return 0;
	memcpy(&sender, CMSG_DATA(head), sizeof sender);
	from->process = sender.pid;
	return sender.uid == getuid();
}

static int words_number_of(const char *text)
{
	char *end;
	long number = strtol(text, &end, 10);

	return end == text || *end || number < 0 || number > INT_MAX ? -1 : (int)number;
}

int words_next(const struct words *words, struct word_from *from)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(struct ucred))];
	char text[24];
	struct iovec into = {text, sizeof text - 1};
	struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control};
	ssize_t bytes;

	do {
		message.msg_controllen = sizeof control;
		bytes = recvmsg(words->fd, &message, MSG_CMSG_CLOEXEC);
		if (bytes <= 0)
			return 0;
	} while (!words_is_ours(&message, from));
	text[bytes] = '\0';
	from->rank = words_number_of(text + 1);
	return text[0];
}
