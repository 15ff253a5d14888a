/* Calls of ranks of which some are processes that share a GPU: of these one has kernels, and
 * streams wait for each other. For channels.c, channels_launch.c and channels_record.c. */
#ifndef CUDA_TURNS_H
#define CUDA_TURNS_H

#include "cuda/channels_internal.h"

/* Whether a GPU is shared by processes. */
bool cuda_turns_are_needed(const struct cuda_part *parts, int size);
/* This rank's page in its part, which has none where it cannot be made, or waited for. */
void cuda_turns_describe(const struct cuda_channels *channels, struct cuda_part *part);
/* c->turns, or UNSUPPORTED with the reason; MEMORY, DEVICE. In the device's context, as below. */
tutti_status cuda_turns_connect(struct cuda_channels *channels, const struct cuda_part *parts);
/* turn_exports.c: the place of a buffer, where the leader maps it by an IPC handle; else it is
 * offered, for later calls. The leader takes the offers of all; own: its page. */
uint64_t cuda_turn_offer(struct cuda_channels *channels, const void *ptr);
void cuda_turn_offers_take(struct cuda_channels *channels);
void cuda_turn_offers_close(struct turn_page *own);
/* Puts all turns of a call into the stream. */
tutti_status cuda_turns_launch(struct cuda_channels *channels,
                               const struct cuda_channels_launch *launch, CUstream stream);
/* As cuda_channels_is_running. */
bool cuda_turns_are_running(const struct cuda_channels *channels, uint64_t *ended);
/* From any thread: the rank's streams wait for no turn any more. */
void cuda_turns_release(const struct cuda_channels *channels);
/* Whether a leader's kernel is using the buffers of ranks. A leader's kernel that begins after
 * cuda_turns_release does not use those of this rank. */
bool cuda_turns_use_buffers(const struct cuda_channels *channels);
/* NULL is fine. unmaps: no kernel uses the others' memory any more. */
void cuda_turns_close(struct cuda_channels *channels, bool unmaps);

#endif
