/* How many bytes a rank needs: arithmetic on a layout, a model and a config, before anything is
 * allocated. */
#ifndef TRAIN_MEMORY_NEED_H
#define TRAIN_MEMORY_NEED_H

#include "train/model/span_layout.h"

/* Sets param_bytes, grad_bytes and optimizer_bytes of stats: what stays on this rank of the shard
 * group, with AdamW, without padding. */
void memory_resident(const struct model_layout *layout, const struct tutti_model *model,
		     const tutti_train_config *config, int shard_rank, tutti_train_stats *stats);
/* The bytes of all slots that the plain order of units needs, the same on all ranks. MEMORY. */
tutti_status memory_for_slots(const struct model_layout *layout, const struct tutti_model *model,
			      const tutti_train_config *config, size_t *bytes);
/* MEMORY, with the sum, when needed is more than memory_limit. */
tutti_status memory_check(const tutti_train_config *config, const tutti_train_stats *needed);

/* Gradients are sent. Only local SGD sends none. */
bool config_has_wire(const tutti_train_config *config);
/* The type of a span's reduced gradients. */
tutti_dtype span_sum_dtype(const struct param_span *span, const tutti_train_config *config);

#endif
