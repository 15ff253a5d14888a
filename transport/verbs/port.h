/* All RDMA ports, for tutti-info: also ports that carry no messages, and GIDs that were not chosen.
 * It needs no header of libibverbs. */
#ifndef TRANSPORT_VERBS_PORT_H
#define TRANSPORT_VERBS_PORT_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stdint.h>

struct verbs_listed_gid {
	int index;
	const char *type;                /* "RoCE v2", "RoCE v1" or "InfiniBand" */
	char address[64], interface[16]; /* interface: or "" */
	bool is_chosen;
	char why[80]; /* it is chosen; or "" */
};

struct verbs_listed_port {
	char device[64];
	int number;      /* 0: the device cannot be opened, and lacks says why */
	bool is_used;    /* by connections that are made now */
	bool has_maps;   /* its device registers dma-bufs, such as those of GPUs */
	char lacks[100]; /* "": it carries messages */
	char state[24];
	const char *link; /* "Ethernet" or "InfiniBand" */
	double gigabits;  /* in a second; 0: unknown */
	int mtu, lid;     /* lid: 0 on Ethernet */
	struct verbs_listed_gid *gids;
	int gid_count;
};

struct verbs_listing {
	struct verbs_listed_port *ports; /* by device */
	int count;
	uint64_t lock_bytes;     /* that this process may lock; UINT64_MAX: there is no limit */
	const char *lock_advice; /* NULL: it is enough; else how to raise it */
};

/* gid_index and devices: as of verbs_ports_open. lock_bytes and lock_advice are filled in after an
 * error, too. UNSUPPORTED: there is no libibverbs; MEMORY, SYSTEM. */
tutti_status verbs_listing_make(struct verbs_listing *listing, int gid_index, const char *devices);
void verbs_listing_free(struct verbs_listing *listing);

#endif
