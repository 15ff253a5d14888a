/* The address that an endpoint gives its peers, and where to dial. */
#ifndef TRANSPORT_TCP_ADDRESS_H
#define TRANSPORT_TCP_ADDRESS_H

#include "transport/tcp/tcp.h"

#include <sys/socket.h>

#define TCP_CANDIDATES   17     /* addresses of one peer that are tried */

struct tcp_address {
	struct sockaddr_storage sockaddr;
	socklen_t bytes;
	bool is_near; /* loopback, of a peer on this machine, which listens there */
};

tutti_status tcp_address_make(struct tcp_endpoint *ep, const char *preferred);
int tcp_address_reach(const struct tcp_endpoint *ep, const uint8_t *address, size_t bytes);
/* Whether the first connection that either end tries goes over a network. */
bool tcp_address_is_far(const struct tcp_endpoint *ep, const uint8_t *address, size_t bytes);
/* Candidates in the order in which to try them. Returns how many. */
int tcp_address_candidates(const struct tcp_endpoint *ep, const uint8_t *address, size_t bytes,
			   struct tcp_address list[TCP_CANDIDATES]);
bool tcp_address_is_loopback(const struct sockaddr *sockaddr);
void tcp_address_print(const struct sockaddr *sockaddr, char text[TCP_TEXT_BYTES]);

#endif
