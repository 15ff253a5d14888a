/* Calls of ranks of which some are processes that share a GPU: kernels that do not wait, and stream
 * waits between them. For channels.c and channels_launch.c. */
#ifndef CUDA_TURNS_H
#define CUDA_TURNS_H

#include "cuda/channels_internal.h"

/* Whether a GPU is shared by processes. */
bool cuda_turns_are_needed(const struct cuda_part *parts, int size);
/* This rank's page in its part, which has none where it cannot be made. */
void cuda_turns_describe(const struct cuda_channels *channels, struct cuda_part *part);
/* c->turns, or UNSUPPORTED with the reason; MEMORY, DEVICE. In the device's context, as below. */
tutti_status cuda_turns_connect(struct cuda_channels *channels, const struct cuda_part *parts);
/* Puts all turns of a call into the stream. */
tutti_status cuda_turns_launch(struct cuda_channels *channels,
                               const struct cuda_channels_launch *launch, CUstream stream);
/* From any thread: the rank's streams wait for no turn any more. */
void cuda_turns_release(const struct cuda_channels *channels);
/* NULL is fine. unmaps: no kernel uses the others' memory any more. */
void cuda_turns_close(struct cuda_turns *turns, bool unmaps);

#endif
