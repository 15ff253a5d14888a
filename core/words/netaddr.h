/* The one parser of "host:port" as users write it, in options, variables, URLs and files. Also this
 * machine's loopback address. */
#ifndef CORE_WORDS_NETADDR_H
#define CORE_WORDS_NETADDR_H

#include <stdbool.h>
#include <stddef.h>

/* These return NULL, or what is wrong, such as "has no port: ...", which the caller's message
 * appends to the text that was read. host is written without brackets, on success only; host_bytes
 * includes its terminating zero. */

/* "node1:29500", "10.0.0.1:29500", "[fd98::1]:29500", "[fe80::1%eth0]:29500". An IPv6 address needs
 * its brackets here: without them its last part would be taken for the port. */
const char *netaddr_read(const char *text, char *host, size_t host_bytes, int *port);
/* A host alone: a name, an IPv4 address, or an IPv6 address with or without brackets. */
const char *netaddr_read_host(const char *text, char *host, size_t host_bytes);
/* Whether text is a port from 1 to 65535: digits and nothing else. */
bool netaddr_read_port(const char *text, int *port);

/* Whether host is an IPv4 or IPv6 address (also one with a scope), not a name. */
bool netaddr_is_literal(const char *host);
/* Whether host, with or without brackets, is a link-local IPv6 address without a scope. No socket
 * can be bound or connected to it (EINVAL), so netaddr_read and netaddr_read_host refuse it. */
bool netaddr_lacks_scope(const char *host);
/* Whether host is a loopback address, or localhost. */
bool netaddr_is_loopback(const char *host);
/* The address where processes of this machine meet: "127.0.0.1", or "::1" if it has only that. */
const char *netaddr_loopback(void);
/* For 127.0.0.1 and ::1: 0, or the errno why no process of this machine can be reached there, which
 * waiting does not change. 0 for every other host. */
int netaddr_loopback_error(const char *host);

#endif
