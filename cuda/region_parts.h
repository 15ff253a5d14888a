/* The parts of regions that this process has made. */
#ifndef CUDA_REGION_PARTS_H
#define CUDA_REGION_PARTS_H

#include "cuda/channels_internal.h"
#include "cuda/multicast.h"

/* The next thing to do with a part, together with the other ranks. */
enum region_step { REGION_MAP, REGION_BIND, REGION_USE, REGION_DONE };

struct region_part {
	struct region_part *next;
	const struct cuda_channels *channels; /* NULL: they are gone, or the part is free */
	struct region_memory memory;
	struct cuda_multicast multicast;
	uint32_t number; /* of the region */
	bool is_used;
	bool is_lost;    /* kernels that do not end may still use it: for ever            */
	uint64_t due_ns; /* not used any more, and to be given back at that time; or 0    */
	enum region_step step;
};

/* With the smallest number that this rank has free; as cuda_region_alloc. Between cuda_enter and
 * cuda_leave. */
tutti_status region_part_take(const struct cuda_channels *channels, size_t bytes, bool is_plain,
                              struct region_part **part);
/* The part that is not complete yet, of which there is one at a time; or NULL. */
struct region_part *region_part_incomplete(const struct cuda_channels *channels);
/* Kernels of a call that has failed may be there that do not end. */
bool region_may_still_run(const struct cuda_channels *channels);

#endif
