/* The formulas of docs/training.md, from whole shapes. */
#include "tests/train/mesh_bytes.h"

#include <string.h>

/* Each unit has these, with as many rows as there are ranks, so that whatever divides them does so
 * evenly: parts are multiples of 64 elements, which no algorithm rounds. */
static const struct bytes_param kinds[EACH + 1] = {
	{256, "tp", NULL}, {64, NULL, "tp"},  {128, NULL, NULL},
	{192, "ep", NULL}, {320, "tp", NULL}, /* tied: of the first unit, and used by the last one
					       */
};

const struct bytes_param *bytes_kind_of(int param)
{
	return &kinds[param < UNITS * EACH ? param % EACH : EACH];
}

int bytes_axis_size(const struct bytes_rank *own, const char *axis)
{
	return tutti_mesh_size(own->mesh, axis);
}

int bytes_stages(const struct bytes_rank *own)
{
	return bytes_axis_size(own, "pp") * own->run->chunks;
}

int bytes_stage_of(const struct bytes_rank *own, int unit)
{
	return unit * bytes_stages(own) / UNITS;
}

bool bytes_is_here(const struct bytes_rank *own, int unit)
{
	return bytes_stage_of(own, unit) % bytes_axis_size(own, "pp") ==
	       tutti_mesh_coord(own->mesh, "pp");
}

static bool uses(int unit, int param)
{
	return param == PARAMS - 1 ? unit == 0 || unit == UNITS - 1 : param / EACH == unit;
}

static bool is_used_here(const struct bytes_rank *own, int param)
{
	for (int u = 0; u < UNITS; u++)
		if (uses(u, param) && bytes_is_here(own, u))
			return true;
	return false;
}

/* Of this rank's piece. */
static uint64_t bytes_of(const struct bytes_rank *own, int param)
{
	const struct bytes_param *d = bytes_kind_of(param);
	int parts = d->split ? bytes_axis_size(own, d->split) : 1;

	return (uint64_t)own->ranks * (uint64_t)d->columns / (uint64_t)parts * ELEMENT;
}

/* The two stages that have the tied one, as bits; 0: one rank of "pp" has both. */
uint64_t bytes_tied_stages(const struct bytes_rank *own, int param)
{
	int pp = bytes_axis_size(own, "pp"), last = bytes_stage_of(own, UNITS - 1) % pp;

	return param == PARAMS - 1 && last != 0 ? 1u | (uint64_t)1 << last : 0;
}

/* The axes, as bits, over which a gradient is summed beside "dp" and "cp". */
static unsigned summed_axes(const struct bytes_rank *own, int param, int *ranks)
{
	const struct bytes_param *d = bytes_kind_of(param);
	unsigned set = 0;

	*ranks = bytes_tied_stages(own, param) ? 2 : 1;
	for (int i = 0; i < own->text.count; i++) {
		const tutti_axis *axis = &own->text.axes[i];
		bool is_split = d->split && strcmp(d->split, axis->name) == 0;
		bool is_partial = d->partial && strcmp(d->partial, axis->name) == 0;
		if (axis->size == 1 || is_split || !(is_partial || strcmp(axis->name, "ep") == 0))
			continue;
		set |= 1u << i;
		*ranks *= axis->size;
	}
	return set;
}

/* What n ranks send: each a part of n - 1 of n, twice for a sum that all of them get. */
static uint64_t scattered(uint64_t bytes, int n)
{
	return bytes * (uint64_t)(n - 1) / (uint64_t)n;
}

struct bytes_shards bytes_shards_of(const struct bytes_rank *own)
{
	int data = bytes_axis_size(own, "dp") * bytes_axis_size(own, "cp");
	const tutti_train_config *config = &own->run->config;

	if (config->strategy == TUTTI_HSDP)
		return (struct bytes_shards){data, config->shard_size};
	return (struct bytes_shards){data, config->strategy == TUTTI_DDP ? 1 : data};
}

static uint64_t all_bytes(const struct bytes_rank *own)
{
	uint64_t bytes = 0;

	for (int p = 0; p < PARAMS; p++)
		bytes += is_used_here(own, p) ? bytes_of(own, p) : 0;
	return bytes;
}

/* Of a step, to ranks with other data. */
uint64_t bytes_of_grads(const struct bytes_rank *own)
{
	struct bytes_shards s = bytes_shards_of(own);
	uint64_t bytes = all_bytes(own), reduced = scattered(bytes, s.size);
	uint64_t times = own->run->has_pipeline ? 1 : MICRO_BATCHES;

	switch (own->run->config.strategy) {
	case TUTTI_DDP:
		return 2 * scattered(bytes, s.data);
	case TUTTI_ZERO1:
		return reduced;
	case TUTTI_HSDP:
		return times * reduced + 2 * scattered(bytes / (uint64_t)s.size, s.data / s.size);
	default:
		return times * reduced;
	}
}

/* Whether two parameters of a unit travel together: they are summed and split alike. */
static bool is_alike(const struct bytes_rank *own, int p, int q)
{
	const char *a = bytes_kind_of(p)->split, *b = bytes_kind_of(q)->split;
	int n;

	a = a && bytes_axis_size(own, a) > 1 ? a : "";
	b = b && bytes_axis_size(own, b) > 1 ? b : "";
	return strcmp(a, b) == 0 && bytes_tied_stages(own, p) == bytes_tied_stages(own, q) &&
	       summed_axes(own, p, &n) == summed_axes(own, q, &n);
}

/* The first parameter of those that travel with it. The tied one is registered behind those of
 * other units and travels alone. */
static int leader(const struct bytes_rank *own, int param)
{
	int first = param / EACH * EACH;

	while (!is_alike(own, first, param))
		first++;
	return first;
}

/* A unit that begins needs it. */
static bool needs(const struct bytes_rank *own, int unit, int param)
{
	for (int p = 0; unit >= 0 && p < PARAMS; p++)
		if (uses(unit, p) && leader(own, p) == leader(own, param))
			return true;
	return false;
}

/* FSDP: what a unit needs is fetched when it begins, if the unit before did not need it. */
static uint64_t fetched(const struct bytes_rank *own)
{
	uint64_t bytes = 0;

	for (int i = 1; i < own->begun_count; i++)
		for (int p = 0; p < PARAMS; p++)
			if (needs(own, own->begun[i], p) && !needs(own, own->begun[i - 1], p))
				bytes += bytes_of(own, p);
	return bytes;
}

/* Values, the step's last comparison of units, of 4 bytes, and the norm, of 184, within a shard
 * group. */
uint64_t bytes_of_values(const struct bytes_rank *own)
{
	struct bytes_shards s = bytes_shards_of(own);
	tutti_strategy strategy = own->run->config.strategy;
	uint64_t others = (uint64_t)(s.size - 1);

	if (s.size == 1)
		return 0;
	if (strategy == TUTTI_ZERO1 || strategy == TUTTI_ZERO2)
		return scattered(all_bytes(own), s.size) + 184 * others;
	return scattered(fetched(own), s.size) + (4 + 184) * others;
}

uint64_t bytes_of_sums(const struct bytes_rank *own, unsigned axes, uint64_t tied)
{
	struct bytes_shards s = bytes_shards_of(own);
	uint64_t bytes = 0;

	for (int p = 0; p < PARAMS; p++) {
		int ranks;
		if (is_used_here(own, p) && summed_axes(own, p, &ranks) == axes &&
		    bytes_tied_stages(own, p) == tied && ranks > 1)
			bytes += 2 * scattered(bytes_of(own, p) / (uint64_t)s.size, ranks);
	}
	return bytes;
}

uint64_t bytes_messages(const struct bytes_rank *own)
{
	uint64_t count = 0;

	for (int c = 0; c < own->run->chunks; c++) {
		int stage = c * bytes_axis_size(own, "pp") + tutti_mesh_coord(own->mesh, "pp");
		count += (uint64_t)(stage < bytes_stages(own) - 1) + (uint64_t)(stage > 0);
	}
	return own->run->has_pipeline ? MICRO_BATCHES * count : 0;
}
