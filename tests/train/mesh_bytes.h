/* A model whose bytes on a mesh are known, and what docs/training.md says that a rank sends. */
#ifndef TESTS_TRAIN_MESH_BYTES_H
#define TESTS_TRAIN_MESH_BYTES_H

#include "tests/train/mesh_toy.h"

#include <tutti/parallel.h>

#include <stdbool.h>
#include <stdint.h>

enum { UNITS = 8, EACH = 4, PARAMS = UNITS * EACH + 1, MICRO_BATCHES = 3, ELEMENT = 4 };

/* A parameter of a unit. Its rows are as many as there are ranks. */
struct bytes_param {
	int64_t columns;
	const char *split, *partial;
};

struct bytes_run {
	const char *axes;
	tutti_train_config config;
	int has_pipeline, chunks;
	tutti_schedule schedule;
};

/* A rank's own. */
struct bytes_rank {
	const struct bytes_run *run;
	struct mesh_text text;
	tutti_mesh *mesh;
	tutti_trainer *trainer;
	tutti_pipeline *pipeline;
	int ranks;
	/* Of one step: the units in the order in which they began; -1: a micro-batch begins. */
	int begun[4096], begun_count;
};

struct bytes_shards {
	int data, size; /* ranks of "dp" and "cp", and those of a shard group */
};

const struct bytes_param *bytes_kind_of(int param);
/* 1 for an axis that is not there. */
int bytes_axis_size(const struct bytes_rank *own, const char *axis);
int bytes_stages(const struct bytes_rank *own);
int bytes_stage_of(const struct bytes_rank *own, int unit);
/* Whether this rank has the unit. */
bool bytes_is_here(const struct bytes_rank *own, int unit);
uint64_t bytes_tied_stages(const struct bytes_rank *own, int param);
struct bytes_shards bytes_shards_of(const struct bytes_rank *own);
/* Sent by this rank over dp and cp in a step: gradients, */
uint64_t bytes_of_grads(const struct bytes_rank *own);
/* and values, with what compares them. */
uint64_t bytes_of_values(const struct bytes_rank *own);
/* Over these axes, as bits, and among these stages. */
uint64_t bytes_of_sums(const struct bytes_rank *own, unsigned axes, uint64_t tied);
/* Messages of a pipeline that this rank sends, both ways. */
uint64_t bytes_messages(const struct bytes_rank *own);

#endif
