/* How the ranks of a job reach each other. */
#ifndef TOOLS_TUTTI_INFO_PAIRS_H
#define TOOLS_TUTTI_INFO_PAIRS_H

#include "machine.h"

#define PAIRS_WHY_BYTES 400

/* A transport, as a rank has it. */
struct offer {
	char name[16], why[240];
	int32_t state; /* enum transport_state */
	uint32_t bytes;
	uint8_t address[TUTTI_ADDRESS_BYTES];
};

/* A rank, as it presents itself to the others. */
struct presentation {
	char host[64];
	int32_t node, is_first; /* of its node's ranks */
	char gpu[GPU_UUID_BYTES]; /* which it has by LOCAL_RANK; "": none */
	int32_t offer_count;
	struct offer offers[TRANSPORTS_MAX];
};

/* A rank's GPU, in a communicator of all ranks. */
struct gpu_part {
	int32_t way; /* of the collectives of its node: enum gpu_way */
	char no_multicast[100]; /* of its node's GPUs; "": they have it */
};
enum gpu_way { GPU_BY_ENGINE, GPU_BY_KERNELS, GPU_BY_TURNS };

/* A peer, as a rank sees it. */
struct view {
	char way[16];                  /* the transport of messages, or "" */
	int32_t long_way;              /* of long messages between GPUs: enum p2p_way */
	int32_t reach[TRANSPORTS_MAX]; /* by this rank's offers; 0: not reached */
	int32_t relation;              /* enum gpu_relation */
};

/* Pairs that are connected alike. */
struct pair_kind {
	char *signature;
	int (*pairs)[2]; /* the lower rank first */
	size_t count, room;
};

struct pairs {
	int size;
	bool has_gpus; /* any rank */
	const char *no_window; /* why the ranks share none; NULL: they do */
	struct presentation *ranks;
	/* Of rank 0: */
	struct gpu_part *parts; /* of all ranks */
	struct view *views; /* of rank 0's peers, then of rank 1's, ... */
	struct pair_kind *kinds;
	size_t kind_count, kind_room;
};

/* Collective. */
tutti_status pairs_gather(struct pairs *pairs, tutti_comm *comm, const struct machine *machine);
void pairs_free(struct pairs *pairs);
/* The transport of messages between two ranks. */
const char *pairs_way(const struct pairs *pairs, int a, int b);
/* How their GPUs lie to each other. */
enum gpu_relation pairs_relation(const struct pairs *pairs, int a, int b);
/* How long messages between their GPUs go: "stages", "adapters", "host memory" or "none". */
const char *pairs_long_way(const struct pairs *pairs, int a, int b);
/* The same in words, with the reason. */
const char *pairs_long_text(const struct pairs *pairs, int a, int b);
const char *pairs_gpu_way_text(const struct gpu_part *part); /* "kernels", "turns" or "engine" */
/* Why it is an offer of rank a, or why not. Returns the number by which transports are compared. */
int pairs_explain(const struct pairs *pairs, int a, int b, int offer, char why[PAIRS_WHY_BYTES]);

void pairs_print(FILE *file, const struct pairs *pairs);

#endif
