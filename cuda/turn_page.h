/* Pages of host memory in which ranks find each other's flags (struct turn_page), and which GPUs
 * write. Those of a process are in few memfds, which other processes open by /proc, as CUDA's own
 * handles need the same user and the same view of processes. What was opened stays to the process's
 * end: streams may still wait there, and kernels write. */
#ifndef CUDA_TURN_PAGE_H
#define CUDA_TURN_PAGE_H

#include "cuda/api.h"
#include "cuda/kernels/channel.h"

#include <tutti/tutti.h>

struct cuda_turn_page {
	struct turn_page *page;
	uint32_t fd, slot; /* of the memfd, and which of its pages */
};

/* Zero-filled but for its token. It is never given back. SYSTEM, MEMORY. */
tutti_status cuda_turn_page_make(struct cuda_turn_page *own);
/* For another communicator: all flags are as at first. Nobody may write it any more. */
void cuda_turn_page_renew(struct cuda_turn_page *own);
/* That of another process, whose fd and slot these are. UNSUPPORTED, with the reason. */
tutti_status cuda_turn_page_open(struct turn_page **page, uint32_t pid, uint32_t fd, uint32_t slot,
                                 uint64_t token);
/* Where the current context's device reaches a page of this process, or one that it has opened. */
tutti_status cuda_turn_page_pin(struct turn_page *page, CUdeviceptr *address);

#endif
