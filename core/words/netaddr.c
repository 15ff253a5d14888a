/* Parses hosts and ports without asking another machine. */
#include "core/words/netaddr.h"

#include "core/words/number.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT_DIGITS 5

static const char no_brackets[] = "is an IPv6 address without brackets: with a port write "
				  "[fd98::1]:29500";
static const char text_before[] = "has text before its '['";

/* Of an IPv6 address with or without a scope, such as fe80::1%eth0. */
static bool netaddr_is_ipv6(const char *text, size_t bytes)
{
	const char *percent = memchr(text, '%', bytes);
	size_t n = percent ? (size_t)(percent - text) : bytes;
	char address[INET6_ADDRSTRLEN];
	struct in6_addr binary;

	if (n >= sizeof address)
		return false;
	memcpy(address, text, n);
	address[n] = '\0';
	if (inet_pton(AF_INET6, address, &binary) != 1)
		return false;
	if (!percent)
		return true;
	size_t scope = bytes - n - 1;
	for (size_t i = 0; i < scope; i++)
		if (!isgraph((unsigned char)percent[1 + i]) || strchr("/[]%,", percent[1 + i]))
			return false;
	return scope > 0 && scope < IF_NAMESIZE;
}

/* Whether text can be a host name; the resolver judges it. Bytes above 127 may be letters. */
static bool netaddr_is_name(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		unsigned char c = (unsigned char)text[i];
		if (c <= ' ' || c == 127 || strchr("/@[]:,%?#", c))
			return false;
	}
	return true;
}

/* A host as it was written. The brackets around it are left out. */
struct host_text {
	const char *text;
	size_t bytes;
	bool has_brackets;
};

static struct host_text netaddr_host_text_of(const char *text, size_t bytes)
{
	if (bytes > 1 && text[0] == '[' && text[bytes - 1] == ']')
		return (struct host_text){text + 1, bytes - 2, true};
	return (struct host_text){text, bytes, false};
}

/* Of an IPv6 address. */
static bool lacks_scope(const struct host_text *p)
{
	char address[INET6_ADDRSTRLEN] = "";
	struct in6_addr binary;

	if (p->bytes >= sizeof address)
		return false;
	memcpy(address, p->text, p->bytes);
	return inet_pton(AF_INET6, address, &binary) == 1 && IN6_IS_ADDR_LINKLOCAL(&binary);
}

/* Why it is neither a name nor an address. */
static const char *netaddr_say_no_host(const struct host_text *p)
{
	const char *open = memchr(p->text, '[', p->bytes);

	if (p->has_brackets)
		return "has no IPv6 address in its brackets";
	if (!open)
		return "has no host, which is a name or an address";
	if (open != p->text)
		return text_before;
	return memchr(p->text, ']', p->bytes) ? "has text behind its ']'" : "has no ']'";
}

static const char *read_host(const char *text, size_t bytes, char *host, size_t host_bytes)
{
	struct host_text p = netaddr_host_text_of(text, bytes);

	if (p.bytes == 0)
		return "has no host";
	if (p.bytes >= host_bytes)
		return "has a host that is too long";
	if (!netaddr_is_ipv6(p.text, p.bytes) &&
	    (p.has_brackets || !netaddr_is_name(p.text, p.bytes)))
		return netaddr_say_no_host(&p);
	if (lacks_scope(&p))
		return "has a link-local IPv6 address without a scope: name the interface that "
		       "leads there, as in fe80::1%eth0";
	memcpy(host, p.text, p.bytes);
	host[p.bytes] = '\0';
	return NULL;
}

bool netaddr_read_port(const char *text, int *port)
{
	return strlen(text) <= PORT_DIGITS && number_read_int(text, 1, 65535, port);
}

const char *netaddr_read(const char *text, char *host, size_t host_bytes, int *port)
{
	const char *colon = strrchr(text, ':'), *why;
	size_t bytes = strlen(text);
	int number;

	if (!colon || (text[0] == '[' && text[bytes - 1] == ']'))
		return "has no port: write host:port, such as node1:29500";
	size_t host_part = (size_t)(colon - text);
	const char *first = strchr(text, ':');
	if (text[0] != '[' && strchr(text, '['))
		return text_before;
	if (text[0] != '[' && first != colon)
		return netaddr_is_ipv6(text, bytes) || strchr(first + 1, ':') != colon
			       ? no_brackets
			       : "has two colons: write host:port, such as node1:29500";
	if (!netaddr_read_port(colon + 1, &number))
		return "has no port from 1 to 65535 behind its last colon";
	why = read_host(text, host_part, host, host_bytes);
	if (!why)
		*port = number;
	return why;
}

const char *netaddr_read_host(const char *text, char *host, size_t host_bytes)
{
	const char *why = read_host(text, strlen(text), host, host_bytes);
	char unused[256];
	int port;

	if (why && !netaddr_read(text, unused, sizeof unused, &port))
		return "has a port, but must be a host alone";
	return why;
}

bool netaddr_is_literal(const char *host)
{
	struct in_addr address;

	return inet_pton(AF_INET, host, &address) == 1 || netaddr_is_ipv6(host, strlen(host));
}

bool netaddr_lacks_scope(const char *host)
{
	struct host_text p = netaddr_host_text_of(host, strlen(host));

	return lacks_scope(&p);
}

bool netaddr_is_loopback(const char *host)
{
	struct in_addr four;
	struct in6_addr six;

	if (inet_pton(AF_INET, host, &four) == 1)
		return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
	if (inet_pton(AF_INET6, host, &six) == 1)
		return IN6_IS_ADDR_LOOPBACK(&six);
	return strcmp(host, "localhost") == 0;
}

/* 0, or the errno why processes of this machine cannot meet there. Connecting a datagram socket
 * sends nothing, but needs a route, and an address of an interface that is down has none. */
static int netaddr_meeting_error(const struct sockaddr *address, socklen_t bytes)
{
	int error = 0, fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno;
	if (bind(fd, address, bytes) != 0 || connect(fd, address, bytes) != 0)
		error = errno;
	close(fd);
	return error;
}

static int netaddr_ipv4_error(void)
{
	const struct sockaddr_in address = {.sin_family = AF_INET,
					    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	return netaddr_meeting_error((const struct sockaddr *)&address, sizeof address);
}

static int netaddr_ipv6_error(void)
{
	const struct sockaddr_in6 address = {.sin6_family = AF_INET6,
					     .sin6_addr = IN6ADDR_LOOPBACK_INIT};

	return netaddr_meeting_error((const struct sockaddr *)&address, sizeof address);
}

static bool netaddr_is_missing(int error)
{
	return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == ENETUNREACH;
}

int netaddr_loopback_error(const char *host)
{
	int error = 0;

	if (strcmp(host, "127.0.0.1") == 0)
		error = netaddr_ipv4_error();
	else if (strcmp(host, "::1") == 0)
		error = netaddr_ipv6_error();
	return netaddr_is_missing(error) ? error : 0;
}

const char *netaddr_loopback(void)
{
	return netaddr_is_missing(netaddr_ipv4_error()) && netaddr_ipv6_error() == 0 ? "::1"
										     : "127.0.0.1";
}
