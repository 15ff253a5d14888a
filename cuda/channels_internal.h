/* Channels, as their own files see them. */
#ifndef CUDA_CHANNELS_INTERNAL_H
#define CUDA_CHANNELS_INTERNAL_H

#include "cuda/channels.h"
#include "cuda/door.h"
#include "cuda/region_parts.h"
#include "cuda/segment.h"

#include <stdatomic.h>

/* By turns: an allocation that this rank offers to its leader. */
struct cuda_offer {
	CUdeviceptr base; /* 0: none */
	uint64_t id;
	uint32_t last;    /* turn_mark() of the last turn of the latest call that uses it */
};

/* By turns: what this rank knows of the others' pages and staging, and how far it is. */
struct cuda_turns {
	struct turn_page *views[CHANNEL_RANKS]; /* pages as this process maps them ...    */
	CUdeviceptr pages[CHANNEL_RANKS];       /* ... and as the device does             */
	CUdeviceptr staging[CHANNEL_RANKS];
	bool is_here[CHANNEL_RANKS];   /* it is this process                              */
	bool is_mapped[CHANNEL_RANKS]; /* the staging, by a handle                        */
	bool is_cut[CHANNEL_RANKS];    /* it has ended before its staging was mapped      */
	uint32_t pids[CHANNEL_RANKS];
	bool is_complete;              /* all staging has been asked for                  */
	int leader;                    /* of this rank's GPU                              */
	uint32_t leaders, locals;      /* bits of ranks: who leads; whom this one serves  */
	uint32_t turn, calls;          /* the next turn; calls so far                     */
	uint32_t last[TURN_CALLS];     /* turn_mark() of the last turn of a slot's call   */
	uint32_t last_turn;            /* the same of the call that is submitted now      */
	struct cuda_offer offers[TURN_OFFERS];
	uint32_t looked;               /* at so many of them, to see whether they are freed */
	uint64_t offers_seen[CHANNEL_RANKS]; /* of each rank: turn_page.offers_made       */
};

/* Another rank's part of a region, as this one maps it. */
struct region_view {
	const struct region_way *way; /* NULL: there is none */
	struct cuda_mapping here;
};

struct cuda_channels {
	struct cuda_device *device;
	struct cuda_segment *segment;
	CUdeviceptr segments[CHANNEL_RANKS]; /* of all ranks, as this one maps them          */
	bool is_opened[CHANNEL_RANKS];       /* by a handle                                  */
	struct region_view views[CHANNEL_RANKS * CHANNEL_REGIONS]; /* regions of other ranks */
	struct cuda_door *door;              /* for descriptors; NULL: there are no pieces   */
	uint8_t doors[CHANNEL_RANKS][CUDA_DOOR_NAME];
	int rank, size;
	int named; /* this rank in the communicator, for messages */
	unsigned count;                      /* of channels that a call may use              */
	unsigned resident;                   /* blocks that cuda/residency.h counts for it   */
	bool shares_device;                  /* with processes, as cuda/residency.h knows    */
	size_t staging;                      /* of a channel                                 */
	size_t staging_config;               /* of a rank, as it was asked for               */
	size_t stages_offset, stage_bytes;   /* of what its host sends messages by            */
	struct cuda_turns *turns;            /* NULL: kernels wait for each other            */
	bool is_one_process;                 /* all ranks are in this one                    */
	bool is_one_gpu;                     /* all ranks have this one's                    */
	bool shares_default;
	bool opens_buffers;                  /* by turns: of others, by IPC handles          */
	const char *no_multicast;            /* why regions have none; NULL: they have       */
	atomic_bool has_failed;
	CUstream stream;                     /* for calls that are in no stream of the caller's */
	CUevent fork;                        /* what that stream waits for                   */
	CUevent latest;                      /* behind the latest call, of those not captured */
	bool has_latest;
	CUevent captured;                    /* behind the latest that was captured, ...      */
	uint64_t capture;                    /* ... in the capture of this id; 0: none yet    */
};

#endif
