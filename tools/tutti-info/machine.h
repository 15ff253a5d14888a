/* This machine: its transports, RDMA ports, GPUs and limits, and what is missing. */
#ifndef TOOLS_TUTTI_INFO_MACHINE_H
#define TOOLS_TUTTI_INFO_MACHINE_H

#include "collectives/comm/comm.h"
#include "core/status.h"
#include "gpus.h"
#include "transport/registry.h"
#include "transport/verbs/port.h"

#include <stdio.h>

/* ABSENT: it cannot work here. FORBIDDEN: TUTTI_TRANSPORTS leaves it out, so it is not opened. */
enum transport_state { TRANSPORT_POSSIBLE, TRANSPORT_ABSENT, TRANSPORT_FORBIDDEN };

struct transport_row {
	const char *name;
	enum transport_state state;
	char why[ERROR_BYTES];           /* not POSSIBLE; or "" */
	struct tutti_endpoint *endpoint; /* open, with the settings of the job; or NULL */
};

/* A library or file that is not there. */
struct missing_row {
	const char *name, *serves, *package; /* package: Debian's */
};

struct machine {
	char host[64];
	const char *filter; /* TUTTI_TRANSPORTS, or NULL */
	bool uses_dma_buf;  /* TUTTI_DMA_BUF */
	struct transport_row transports[TRANSPORTS_MAX];
	int transport_count;
	struct missing_row missing[16];
	int missing_count;
	struct verbs_listing rdma;
	struct gpus gpus;
	uint64_t shm_bytes, shm_free_bytes; /* of /dev/shm; 0: there is none */
};

/* With the settings of comm. */
void machine_look(struct machine *machine, const struct tutti_comm *comm);
void machine_close(struct machine *machine);
/* Which adapters reach a GPU's memory, and why others do not. */
#define MACHINE_ADAPTERS_BYTES 600
void machine_adapters(const struct machine *machine, int gpu, char text[MACHINE_ADAPTERS_BYTES]);
/* Whether a job can run here. */
bool machine_works(const struct machine *machine);
const char *transport_state_name(enum transport_state state);

/* ranks: those of a job that are on this machine, as "0, 1, 5"; or NULL. */
void machine_print(FILE *file, const struct machine *machine, const char *ranks);

#endif
