/* URLs, this machine's addresses, and the file of a file:// rendezvous. Nothing here talks to
 * another rank. */
#include "core/join/place.h"

#include "core/auth.h"
#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "core/tries.h"
#include "core/words/netaddr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG       1024
#define ADDRESSES_MAX 5

static const char tcp_scheme[] = "tcp://", file_scheme[] = "file://", tutti_scheme[] = "tutti://";

static bool place_skip_prefix(const char **text, const char *prefix)
{
	size_t n = strlen(prefix);

	if (strncmp(*text, prefix, n) != 0)
		return false;
	*text += n;
	return true;
}

static tutti_status place_parse_file(struct job *job, const char *path)
{
	size_t n = strlen(path);

	if (path[0] != '/' || path[1] == '\0' || n >= sizeof job->path)
		return fail(TUTTI_ERR_INVALID,
			    "the rendezvous file://%.200s is not file:// and an "
			    "absolute path of at most %zu bytes",
			    path, sizeof job->path - 1);
	memcpy(job->path, path, n + 1);
	job->meeting = JOB_FILE;
	return TUTTI_OK;
}

/* "a,[::1],b", of fewer than HOST_BYTES bytes. */
static bool place_is_list(const char *list)
{
	char item[HOST_BYTES], host[HOST_BYTES];

	for (;;) {
		size_t n = strcspn(list, ",");
		memcpy(item, list, n);
		item[n] = '\0';
		if (netaddr_read_host(item, host, sizeof host) ||
		    (strchr(host, ':') && item[0] != '['))
			return false;
		if (!list[n])
			return true;
		list += n + 1;
	}
}

/* host,host:port/secret */
static tutti_status place_parse_tutti(struct job *job, const char *rest)
{
	const char *slash = strchr(rest, '/');
	const char *colon = slash ? memrchr(rest, ':', (size_t)(slash - rest)) : NULL;
	char port[8] = "", list[HOST_BYTES] = "";

	if (colon && slash - colon <= (ptrdiff_t)sizeof port && colon - rest < HOST_BYTES) {
		memcpy(port, colon + 1, (size_t)(slash - colon - 1));
		memcpy(list, rest, (size_t)(colon - rest));
	}
	if (!place_is_list(list) || !netaddr_read_port(port, &job->port) ||
	    strlen(slash + 1) != SECRET_HEX_BYTES - 1 ||
	    strspn(slash + 1, "0123456789abcdef") != SECRET_HEX_BYTES - 1)
		return fail(TUTTI_ERR_INVALID, "the rendezvous is not a URL that "
					       "tutti_rendezvous_open has made: is it cut off?");
	memcpy(job->host, list, sizeof job->host);
	memcpy(job->secret, slash + 1, SECRET_HEX_BYTES);
	job->is_url = job->is_served = 1;
	job->meeting = JOB_TCP;
	return TUTTI_OK;
}

/* How many bytes of a URL that is none of ours may be shown. The URL may have a secret anywhere
 * behind "://", and a host and port anywhere behind the first slash. */
static int place_scheme_bytes(const char *url)
{
	size_t n = strcspn(url, ":/");

	return n <= 12 && strncmp(url + n, "://", 3) == 0 ? (int)n : 0;
}

static int place_host_bytes(const char *rest)
{
	size_t n = strcspn(rest, "/");

	return n < 200 ? (int)n : 200;
}

tutti_status place_parse(struct job *job, const char *url)
{
	const char *rest = url, *why;

	job->port_is_taken = 0;
	if (place_skip_prefix(&rest, file_scheme))
		return place_parse_file(job, rest);
	if (place_skip_prefix(&rest, tutti_scheme))
		return place_parse_tutti(job, rest);
	if (!place_skip_prefix(&rest, tcp_scheme))
		return fail(TUTTI_ERR_INVALID,
			    "the rendezvous \"%.*s...\" is none of tcp://host:port, "
			    "file:///path and a URL of tutti_rendezvous_open",
			    place_scheme_bytes(url), url);
	why = netaddr_read(rest, job->host, sizeof job->host, &job->port);
	if (why)
		return fail(TUTTI_ERR_INVALID,
			    "the rendezvous tcp://%.*s is not tcp://host:port with a port from 1 "
			    "to 65535: it %s",
			    place_host_bytes(rest), rest, why);
	job->meeting = JOB_TCP;
	return TUTTI_OK;
}

void place_secret(char hex[SECRET_HEX_BYTES])
{
	uint8_t bytes[(SECRET_HEX_BYTES - 1) / 2];

	auth_random(bytes, sizeof bytes);
	sodium_bin2hex(hex, SECRET_HEX_BYTES, bytes, sizeof bytes);
	sodium_memzero(bytes, sizeof bytes);
}

/* Not loopback, not link-local: what another machine might reach. */
static bool place_is_public(const struct ifaddrs *i)
{
	if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
		return false;
	if (i->ifa_addr->sa_family == AF_INET6)
		return !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr);
	return i->ifa_addr->sa_family == AF_INET;
}

static void place_append_host(char hosts[HOST_BYTES], const char *host)
{
	size_t n = strlen(hosts);
	const char *format = strchr(host, ':') ? "%s[%s]" : "%s%s";

	if (n + strlen(host) + 4 < HOST_BYTES)
		snprintf(hosts + n, HOST_BYTES - n, format, n ? "," : "", host);
}

/* Appends the addresses of an interface; NULL: of all. */
static void place_append_interfaces(char hosts[HOST_BYTES], const char *interface)
{
	struct ifaddrs *list = NULL;
	int n = 1;

	if (getifaddrs(&list) != 0) {
		log_notice("this machine's addresses cannot be read (getifaddrs: %s): ranks of "
			   "other machines can join only if TUTTI_ADDRESS names one",
			   strerror(errno));
		return;
	}
	for (struct ifaddrs *i = list; i && n < ADDRESSES_MAX; i = i->ifa_next) {
		char text[INET6_ADDRSTRLEN];
		socklen_t length = sizeof(struct sockaddr_in6);
		if (!place_is_public(i) || (interface && strcmp(i->ifa_name, interface) != 0))
			continue;
		if (i->ifa_addr->sa_family == AF_INET)
			length = sizeof(struct sockaddr_in);
		if (getnameinfo(i->ifa_addr, length, text, sizeof text, NULL, 0, NI_NUMERICHOST) ==
		    0) {
			place_append_host(hosts, text);
			n++;
		}
	}
	freeifaddrs(list);
}

/* TUTTI_ADDRESS is an address or the name of an interface. */
static void place_own_hosts(char hosts[HOST_BYTES], const struct env *env)
{
	const char *named = env->address && env->address[0] ? env->address : NULL;
	char host[HOST_BYTES];

	if (named && netaddr_lacks_scope(named))
		log_notice("TUTTI_ADDRESS=%s is a link-local address, which needs a scope, as in "
			   "fe80::1%%eth0: ranks of other machines cannot join",
			   named);
	else if (named && !netaddr_read_host(named, host, sizeof host) && netaddr_is_literal(host))
		place_append_host(hosts, host);
	else
		place_append_interfaces(hosts, named);
	place_append_host(hosts, netaddr_loopback());
}

tutti_status place_url(char *url, size_t url_bytes, const char *secret, int port,
		       const struct env *env)
{
	char hosts[HOST_BYTES] = "";
	int n;

	place_own_hosts(hosts, env);
	n = snprintf(url, url_bytes, "%s%s:%d/%s", tutti_scheme, hosts, port, secret);
	if (n < 0 || (size_t)n >= url_bytes) {
		if (url_bytes)
			url[0] = '\0';
		return fail(TUTTI_ERR_INVALID,
			    "%zu bytes are too few for the rendezvous URL: it has %d (give it %d)",
			    url_bytes, n + 1, URL_BYTES);
	}
	return TUTTI_OK;
}

bool place_next_host(const char **list, char host[HOST_BYTES])
{
	size_t n = strcspn(*list, ",");
	const char *from = *list;

	if (n == 0 || n >= HOST_BYTES)
		return false;
	*list += n + (from[n] == ',');
	if (n > 2 && from[0] == '[' && from[n - 1] == ']') {
		from++;
		n -= 2;
	}
	memcpy(host, from, n);
	host[n] = '\0';
	return true;
}

static bool place_is_any(const char *host)
{
	return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0 || strcmp(host, "*") == 0;
}

/* Only an address of this machine can be bound. SYSTEM: socket or bind is denied. */
static tutti_status place_can_bind(const struct addrinfo *at, bool *can)
{
	int fd = socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int error = fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) != 0 ? errno : 0;

	if (fd >= 0)
		close(fd);
	*can = error == 0;
	if (error == 0 || tried_of(error) == TRIED_UNREACHABLE)
		return TUTTI_OK;
	errno = error;
	return fail_errno("cannot find out whether an address is this machine's (%s)",
			  fd < 0 ? "socket" : "bind");
}

tutti_status place_is_here(const char *host, bool *is_here)
{
	struct addrinfo *list;
	tutti_status status = TUTTI_OK;

	*is_here = place_is_any(host);
	if (*is_here)
		return TUTTI_OK;
	TRY(net_look_up(host, 0, 0, &list));
	for (struct addrinfo *at = list; at && !*is_here && status == TUTTI_OK; at = at->ai_next)
		status = place_can_bind(at, is_here);
	freeaddrinfo(list);
	return status;
}

/* Of a name, this machine's idea (Debian: 127.0.1.1) may not be the others'. */
static bool place_is_exact(const char *host)
{
	return netaddr_is_literal(host) || netaddr_is_loopback(host);
}

tutti_status place_listen(const char *host, int port, int *fd, int *bound_port)
{
	if (host && (errno = netaddr_loopback_error(host)))
		return fail_errno("the ranks of this machine cannot meet at %.200s (is its "
				  "loopback interface up?)",
				  host);
	if (host && place_is_exact(host) && !place_is_any(host)) {
		tutti_status status = net_listen(host, port, BACKLOG, fd, bound_port);
		/* The address may be translated on its way here (NAT), except for loopback. */
		if (status == TUTTI_OK || errno != EADDRNOTAVAIL || netaddr_is_loopback(host))
			return status;
	}
	return net_listen(NULL, port, BACKLOG, fd, bound_port);
}

static tutti_status place_notice_write_line(int fd, const char *url)
{
	char line[URL_BYTES + 1];
	int n = snprintf(line, sizeof line, "%s\n", url);

	errno = ENOSPC; /* a short write sets none */
	bool is_written = write(fd, line, (size_t)n) == n && fsync(fd) == 0;
	sodium_memzero(line, sizeof line);
	return is_written ? TUTTI_OK : TUTTI_ERR_SYSTEM;
}

tutti_status notice_publish(const char *path, const char *url)
{
	char fresh[560], there[URL_BYTES];
	/* A mistyped path must not overwrite another file. */
	tutti_status status = notice_read(path, false, there);
	int fd;

	sodium_memzero(there, sizeof there);
	if (status != TUTTI_OK && status != TUTTI_IN_PROGRESS)
		return status;
	snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
	fd = mkostemp(fresh, O_CLOEXEC); /* mode 0600: there is a secret in it */
	if (fd < 0)
		return fail_errno("rank 0 cannot make the rendezvous file %.300s", fresh);
	status = place_notice_write_line(fd, url);
	if (status != TUTTI_OK || rename(fresh, path) < 0) {
		status = fail_errno("rank 0 cannot write the rendezvous file %.300s", path);
		unlink(fresh);
	}
	close(fd);
	return status;
}

static tutti_status place_check_owner(int fd, const char *path)
{
	struct stat about;

	if (fstat(fd, &about) < 0)
		return fail_errno("cannot look at the rendezvous file %.300s", path);
	if (!S_ISREG(about.st_mode))
		return fail(TUTTI_ERR_INVALID,
			    "the rendezvous %.300s is not a regular file: choose another path",
			    path);
	if (about.st_uid != geteuid())
		return fail(TUTTI_ERR_AUTH,
			    "the rendezvous file %.300s belongs to user %u, not to "
			    "user %u: remove it, or set TUTTI_SECRET",
			    path, (unsigned)about.st_uid, (unsigned)geteuid());
	return TUTTI_OK;
}

tutti_status notice_read(const char *path, bool need_owner, char url[URL_BYTES])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	tutti_status status;
	ssize_t n;

	if (fd < 0 && errno == ENOENT) {
		fail(TUTTI_ERR_TIMEOUT, "there is no rendezvous file %.300s", path);
		return TUTTI_IN_PROGRESS;
	}
	if (fd < 0 && errno == ESTALE) {
		fail(TUTTI_ERR_TIMEOUT, "the rendezvous file %.300s is being replaced (%s)", path,
		     strerror(errno));
		return TUTTI_IN_PROGRESS;
	}
	if (fd < 0)
		return fail_errno("cannot open the rendezvous file %.300s", path);
	status = need_owner ? place_check_owner(fd, path) : TUTTI_OK;
	n = status == TUTTI_OK ? read(fd, url, URL_BYTES - 1) : 0;
	if (n < 0) {
		status = fail_errno("cannot read the rendezvous file %.300s", path);
		n = 0;
	}
	close(fd);
	TRY(status);
	url[n] = '\0';
	url[strcspn(url, "\n")] = '\0';
	if (n == 0) {
		fail(TUTTI_ERR_TIMEOUT, "the rendezvous file %.300s is empty", path);
		return TUTTI_IN_PROGRESS;
	}
	if (strncmp(url, "tutti://", 8) != 0)
		return fail(TUTTI_ERR_INVALID,
			    "%.300s is no rendezvous file: something else is in it, so choose "
			    "another path",
			    path);
	return TUTTI_OK;
}

void notice_remove(const char *path, const char *url)
{
	char there[URL_BYTES] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return;
	n = read(fd, there, sizeof there - 1);
	close(fd);
	if (n > 0 && strncmp(there, url, strlen(url)) == 0)
		unlink(path);
	sodium_memzero(there, sizeof there);
}
