/* The address that an endpoint gives its peers: which machine it is on, its port, and the addresses
 * of its interfaces. And the other way: in which order to dial what a peer has told. */
#include "transport/tcp/address.h"

#include "core/log.h"
#include "core/machine.h"
#include "core/status.h"
#include "core/words/netaddr.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#define MAGIC       0x31706374u /* "tcp1" */
#define FIXED_BYTES 16          /* magic 4, machine 8, port 2, flags 1, count 1 */
#define ITEM_BYTES  17          /* family 1, address 16 */
#define ROOM_BYTES  32 /* left for fabrics, whose addresses begin with this one (transport/oob) */
#define ITEMS       ((TUTTI_ADDRESS_BYTES - ROOM_BYTES - FIXED_BYTES) / ITEM_BYTES)

#define SAME_MACHINE_MBS  3000
#define OTHER_MACHINE_MBS 1000

/* FOREIGN: no interface here has the preferred one, so that peers on this machine rather try
 * others. */
enum { FLAG_PREFERRED = 1, FLAG_FOREIGN = 2 };

_Static_assert(ITEMS + 1 <= TCP_CANDIDATES, "every address and loopback can be tried");

struct item {
	uint8_t family; /* 4 or 6 */
	uint8_t bytes[16];
};

struct blob {
	uint64_t machine;
	uint16_t port;
	uint8_t flags, count;
	struct item items[ITEMS];
};

/* Equal for processes that reach each other over loopback: the same boot of the same kernel and the
 * same network namespace. TUTTI_HOST_ID plays no part: one machine can stand for several. */
static tutti_status address_machine_id(uint64_t *id)
{
	char boot[MACHINE_BOOT_BYTES], text[96];
	uint64_t hash = 0xcbf29ce484222325u;

	TRY(machine_boot(boot));
	snprintf(text, sizeof text, "%s %llu", boot, (unsigned long long)machine_namespace("net"));
	for (const char *p = text; *p; p++)
		hash = (hash ^ (uint8_t)*p) * 0x100000001b3u;
	*id = boot[0] ? hash : 0;
	return TUTTI_OK;
}

static void address_blob_write(struct tcp_endpoint *ep, const struct blob *blob)
{
	const uint32_t magic = MAGIC;
	uint8_t *p = ep->base.address;

	memcpy(p, &magic, 4);
	memcpy(p + 4, &blob->machine, 8);
	memcpy(p + 12, &blob->port, 2);
	p[14] = blob->flags;
	p[15] = blob->count;
	memcpy(p + FIXED_BYTES, blob->items, (size_t)blob->count * ITEM_BYTES);
	ep->base.address_bytes = FIXED_BYTES + (size_t)blob->count * ITEM_BYTES;
}

static bool address_blob_read(struct blob *blob, const uint8_t *p, size_t bytes)
{
	const uint32_t magic = MAGIC;

	if (bytes < FIXED_BYTES || memcmp(p, &magic, 4) != 0 || p[15] > ITEMS ||
	    bytes != FIXED_BYTES + (size_t)p[15] * ITEM_BYTES)
		return false;
	memcpy(&blob->machine, p + 4, 8);
	memcpy(&blob->port, p + 12, 2);
	blob->flags = p[14];
	blob->count = p[15];
	memcpy(blob->items, p + FIXED_BYTES, (size_t)blob->count * ITEM_BYTES);
	return true;
}

static void address_blob_add(struct blob *blob, const struct item *item)
{
	for (int i = 0; i < blob->count; i++)
		if (memcmp(&blob->items[i], item, sizeof *item) == 0)
			return;
	if (blob->count < ITEMS)
		blob->items[blob->count++] = *item;
}

static bool address_item_from_sockaddr(struct item *item, const struct sockaddr *sockaddr)
{
	memset(item, 0, sizeof *item);
	if (sockaddr && sockaddr->sa_family == AF_INET) {
		item->family = 4;
		memcpy(item->bytes, &((const struct sockaddr_in *)(const void *)sockaddr)->sin_addr,
		       4);
		return true;
	}
	if (sockaddr && sockaddr->sa_family == AF_INET6) {
		const struct in6_addr *in6 =
			&((const struct sockaddr_in6 *)(const void *)sockaddr)->sin6_addr;
		item->family = 6;
		memcpy(item->bytes, in6, 16);
		return !IN6_IS_ADDR_LINKLOCAL(in6);
	}
	return false;
}

static bool tcp_is_own(const struct item *item, const struct ifaddrs *interfaces)
{
	struct item own;

	if (item->family == 4 && item->bytes[0] == 127)
		return true;
	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next)
		if (address_item_from_sockaddr(&own, i->ifa_addr) &&
		    memcmp(&own, item, sizeof own) == 0)
			return true;
	return false;
}

/* UNSUPPORTED: a link-local address, since the names of scopes differ from machine to machine. */
static tutti_status address_read_literal(struct item *item, const char *preferred)
{
	char host[INET6_ADDRSTRLEN + IF_NAMESIZE];
	struct in6_addr six = {0};
	bool is_link_local = netaddr_lacks_scope(preferred);

	if (!is_link_local && netaddr_read_host(preferred, host, sizeof host))
		return TUTTI_OK;
	if (is_link_local || (netaddr_is_literal(host) && strchr(host, '%')))
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tcp: TUTTI_ADDRESS=%s is a link-local address, which peers cannot "
			    "connect to: use another address of this machine",
			    preferred);
	if (inet_pton(AF_INET, host, item->bytes) == 1)
		item->family = 4;
	else if (inet_pton(AF_INET6, host, &six) == 1)
		item->family = 6;
	if (item->family == 6)
		memcpy(item->bytes, &six, sizeof six);
	return TUTTI_OK;
}

/* A literal address (which may be a router's that forwards to us, or another node's where all have
 * the same environment) or an interface's name. */
static tutti_status address_add_preferred(struct blob *blob, const struct ifaddrs *interfaces,
					  const char *preferred)
{
	struct item item = {0};

	TRY(address_read_literal(&item, preferred));
	if (item.family)
		address_blob_add(blob, &item);
	if (item.family && !tcp_is_own(&item, interfaces)) {
		blob->flags |= FLAG_FOREIGN;
		log_info("tcp: TUTTI_ADDRESS=%s is no address of this machine; ranks on others try "
			 "it first all the same, for a router may forward it",
			 preferred);
	}
	for (const struct ifaddrs *i = interfaces; i && !item.family; i = i->ifa_next)
		if (strcmp(i->ifa_name, preferred) == 0 &&
		    address_item_from_sockaddr(&item, i->ifa_addr))
			address_blob_add(blob, &item);
	if (blob->count == 0)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tcp: TUTTI_ADDRESS=%s is neither an address nor an interface of this "
			    "machine that has one",
			    preferred);
	blob->flags |= FLAG_PREFERRED;
	return TUTTI_OK;
}

/* A bridge that nothing is plugged into is up, but does not run. */
static bool address_is_running(const struct ifaddrs *i)
{
	return (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING);
}

static void address_add_interfaces(struct blob *blob, const struct ifaddrs *interfaces,
				   uint8_t family, bool must_run)
{
	for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next) {
		struct item item;
		if ((i->ifa_flags & IFF_LOOPBACK) || (must_run && !address_is_running(i)))
			continue;
		if (address_item_from_sockaddr(&item, i->ifa_addr) && item.family == family)
			address_blob_add(blob, &item);
	}
}

/* Where no link is up one may be again soon: its address stays, and those who dial try again until
 * their deadline. */
static void tcp_add_all(struct blob *blob, const struct ifaddrs *interfaces, bool has_ipv6)
{
	bool must_run = true;

	do {
		address_add_interfaces(blob, interfaces, 4, must_run);
		if (has_ipv6)
			address_add_interfaces(blob, interfaces, 6, must_run);
		if (!must_run && blob->count)
			log_info("tcp: no link of this machine is up; others are told its "
				 "addresses all the same");
		must_run = !must_run;
	} while (!must_run && blob->count == 0);
}

tutti_status tcp_address_make(struct tcp_endpoint *ep, const char *preferred)
{
	struct blob blob = {.port = (uint16_t)ep->port};
	struct sockaddr_storage own = {0};
	socklen_t own_bytes = sizeof own;
	struct ifaddrs *interfaces = NULL;
	tutti_status status = TUTTI_OK;

	TRY(address_machine_id(&blob.machine));
	if (getsockname(ep->listener.fd, (struct sockaddr *)&own, &own_bytes) != 0)
		return fail_errno("rank %d cannot read its own tcp port (getsockname)", ep->rank);
	if (getifaddrs(&interfaces) != 0)
		return fail_errno("rank %d cannot read its machine's addresses (getifaddrs)",
				  ep->rank);
	if (preferred && preferred[0])
		status = address_add_preferred(&blob, interfaces, preferred);
	tcp_add_all(&blob, interfaces, own.ss_family == AF_INET6);
	freeifaddrs(interfaces);
	ep->has_ipv6_loopback = own.ss_family == AF_INET6 && strchr(netaddr_loopback(), ':');
	TRY(status);
	address_blob_write(ep, &blob);
	return TUTTI_OK;
}

static bool address_is_same_machine(const struct blob *a, const struct blob *b)
{
	return a->machine != 0 && a->machine == b->machine;
}

int tcp_address_reach(const struct tcp_endpoint *ep, const uint8_t *address, size_t bytes)
{
	struct blob mine, theirs;

	if (!address_blob_read(&mine, ep->base.address, ep->base.address_bytes) ||
	    !address_blob_read(&theirs, address, bytes))
		return 0;
	if (address_is_same_machine(&mine, &theirs))
		return SAME_MACHINE_MBS;
	return mine.count && theirs.count ? OTHER_MACHINE_MBS : 0;
}

/* The machine's others are told to dial the address that TUTTI_ADDRESS names. */
static bool address_is_preferred(const struct blob *blob, bool is_near)
{
	return blob->count && (blob->flags & FLAG_PREFERRED) &&
	       !(is_near && (blob->flags & FLAG_FOREIGN));
}

bool tcp_address_is_far(const struct tcp_endpoint *ep, const uint8_t *address, size_t bytes)
{
	struct blob mine, theirs;

	if (!address_blob_read(&mine, ep->base.address, ep->base.address_bytes) ||
	    !address_blob_read(&theirs, address, bytes))
		return false;
	return !address_is_same_machine(&mine, &theirs) || address_is_preferred(&mine, true) ||
	       address_is_preferred(&theirs, true);
}

static void address_from_item(struct tcp_address *address, const struct item *item, uint16_t port)
{
	memset(address, 0, sizeof *address);
	if (item->family == 4) {
		struct sockaddr_in *in = (struct sockaddr_in *)&address->sockaddr;
		in->sin_family = AF_INET;
		in->sin_port = htons(port);
		memcpy(&in->sin_addr, item->bytes, 4);
		address->bytes = sizeof *in;
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address->sockaddr;
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(port);
		memcpy(&in6->sin6_addr, item->bytes, 16);
		address->bytes = sizeof *in6;
	}
}

int tcp_address_candidates(const struct tcp_endpoint *ep, const uint8_t *address, size_t bytes,
			   struct tcp_address list[TCP_CANDIDATES])
{
	static const struct item ipv4 = {4, {127, 0, 0, 1}}, ipv6 = {6, {[15] = 1}};
	struct blob mine, theirs;
	int count = 0, next = 0;
	bool is_near;

	if (!address_blob_read(&mine, ep->base.address, ep->base.address_bytes) ||
	    !address_blob_read(&theirs, address, bytes))
		return 0;
	is_near = address_is_same_machine(&mine, &theirs);
	if (address_is_preferred(&theirs, is_near))
		address_from_item(&list[count++], &theirs.items[next++], theirs.port);
	if (is_near) {
		address_from_item(&list[count], ep->has_ipv6_loopback ? &ipv6 : &ipv4, theirs.port);
		list[count++].is_near = true;
	}
	while (next < theirs.count)
		address_from_item(&list[count++], &theirs.items[next++], theirs.port);
	return count;
}

bool tcp_address_is_loopback(const struct sockaddr *sockaddr)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sockaddr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)sockaddr;

	if (sockaddr->sa_family == AF_INET)
		return ntohl(in->sin_addr.s_addr) >> 24 == 127;
	if (sockaddr->sa_family != AF_INET6)
		return false;
	return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr) ||
	       (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr) && in6->sin6_addr.s6_addr[12] == 127);
}

void tcp_address_print(const struct sockaddr *sockaddr, char text[TCP_TEXT_BYTES])
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)sockaddr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)sockaddr;
	char host[INET6_ADDRSTRLEN] = "?";

	if (sockaddr->sa_family == AF_INET) {
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
		snprintf(text, TCP_TEXT_BYTES, "%s:%d", host, ntohs(in->sin_port));
	} else if (sockaddr->sa_family != AF_INET6) {
		snprintf(text, TCP_TEXT_BYTES, "an unknown address");
	} else if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], host, sizeof host);
		snprintf(text, TCP_TEXT_BYTES, "%s:%d", host, ntohs(in6->sin6_port));
	} else {
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
		snprintf(text, TCP_TEXT_BYTES, "[%s]:%d", host, ntohs(in6->sin6_port));
	}
}
