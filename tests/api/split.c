/* Children of communicators: who is in them and where, exact results in every one, several
 * generations at once, and what is left when a parent goes first. */
#include "batch.h"
#include "reports.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOBODY ((tutti_comm *)(uintptr_t)1)

/* What all ranks of a parent ask for, and what it comes to for this one. */
struct family {
	int color[API_RANKS], key[API_RANKS];
	bool is_dup;
	int ranks[API_RANKS], size, rank; /* the child's, in the parent; size 0: none */
};

static int mixed_key(struct api *api)
{
	static const int extremes[] = {0, -1, 1, INT32_MIN, INT32_MAX, 7};
	return extremes[random_below(&api->shared, 6)];
}

static void draw_family(struct api *api, struct family *f)
{
	uint64_t kind = random_below(&api->shared, 6);
	uint64_t colors = 1 + random_below(&api->shared, (uint64_t)api->size);

	*f = (struct family){.is_dup = kind == 0};
	for (int r = 0; r < api->size; r++) {
		if (kind == 1) /* everybody, backwards */
			f->key[r] = -r;
		if (kind == 2) /* everybody alone */
			f->color[r] = INT32_MAX - r;
		if (kind <= 2)
			continue;
		f->color[r] = (int)random_below(&api->shared, colors);
		f->key[r] = mixed_key(api);
		if (kind == 3 && random_below(&api->shared, 3) == 0)
			f->color[r] = random_below(&api->shared, 2) ? -1 : INT32_MIN;
	}
	for (int r = 0; r < api->size; r++) {
		int at = f->size;
		if (f->color[r] != f->color[api->rank] || f->color[r] < 0)
			continue;
		for (; at > 0 && f->key[f->ranks[at - 1]] > f->key[r]; at--)
			f->ranks[at] = f->ranks[at - 1];
		f->ranks[at] = r;
		f->size++;
	}
	for (int i = 0; i < f->size; i++)
		if (f->ranks[i] == api->rank)
			f->rank = i;
}

static void check_ranks(struct api *api, const struct family *f, tutti_comm *child)
{
	CHECK(api, tutti_rank(child) == f->rank && tutti_size(child) == f->size,
	      "rank %d of %d, should be %d of %d", tutti_rank(child), tutti_size(child), f->rank,
	      f->size);
	for (int i = 0; i < f->size; i++)
		CHECK(api, tutti_parent_rank(child, i) == f->ranks[i],
		      "rank %d of the child was %d, should be %d", i, tutti_parent_rank(child, i),
		      f->ranks[i]);
	CHECK(api, tutti_parent_rank(child, -1) == -1 && tutti_parent_rank(child, f->size) == -1,
	      "ranks beyond the child have parents");
	CHECK(api, tutti_comm_sequence(child) == 0, "a child that has called already");
	CHECK(api, tutti_comm_status(child) == TUTTI_OK, "a child that has failed already");
}

/* The child's nodes are the parent's as far as it is there, numbered anew. */
static void check_nodes(struct api *api, const struct family *f, tutti_comm *child)
{
	int32_t mine = tutti_node_rank(api->comm), node[API_RANKS];
	int local_rank = 0, local_size = 0, nodes = 0, node_rank = -1;

	CHECK_OK(api, tutti_all_gather(&mine, node, 1, TUTTI_I32, api->comm, NULL));
	for (int i = 0; i < f->size; i++) {
		bool is_ours = node[f->ranks[i]] == mine, is_new = true;
		for (int k = 0; k < i; k++)
			is_new &= node[f->ranks[k]] != node[f->ranks[i]];
		if (is_ours && is_new)
			node_rank = nodes;
		nodes += is_new;
		local_size += is_ours;
		local_rank += is_ours && i < f->rank;
	}
	if (f->size == 0)
		return;
	CHECK(api, tutti_local_rank(child) == local_rank && tutti_local_size(child) == local_size,
	      "local rank %d of %d, should be %d of %d", tutti_local_rank(child),
	      tutti_local_size(child), local_rank, local_size);
	CHECK(api, tutti_node_rank(child) == node_rank && tutti_num_nodes(child) == nodes,
	      "node %d of %d, should be %d of %d", tutti_node_rank(child), tutti_num_nodes(child),
	      node_rank, nodes);
}

/* For the passes' checks a child is a world. */
static struct api world_of(const struct api *parent, const struct family *f, tutti_comm *child)
{
	struct api api = *parent;

	api.comm = child;
	api.rank = f->rank;
	api.size = f->size;
	api.shared = parent->shared ^ (uint64_t)f->color[parent->rank] * 0x9e3779b97f4a7c15u;
	api.own = parent->own + 1;
	return api;
}

static struct call_spec draw_call(struct api *api)
{
	struct call_spec spec = {.name = (enum call_name)random_below(&api->shared, CALLS)};
	uint64_t most = random_below(&api->shared, 8) ? 60 : 5000;
	tutti_dtype dtype = (tutti_dtype)random_below(&api->shared, DTYPES);
	bool reduces = spec.name <= CALL_REDUCE;
	tutti_op op;

	do
		op = (tutti_op)random_below(&api->shared, OPS_BUILT_IN);
	while (!data_fits(op, dtype));
	spec.count = spec.name == CALL_BARRIER ? 0 : random_below(&api->shared, most);
	spec.shared_memory = (enum call_style)random_below(&api->shared, STYLES);
	spec.root = (int)random_below(&api->shared, (uint64_t)api->size);
	spec.data = (struct data){.kind = reduces ? DATA_EXACT : DATA_BITS,
				  .seed = random_next(&api->shared),
				  .dtype = dtype,
				  .op = op,
				  .ranks = api->size};
	if (reduces)
		own_op_draw(&spec.data, &api->shared);
	return spec;
}

static void some_calls(struct api *api, int n)
{
	struct call_spec specs[12];

	for (int i = 0; i < n; i++)
		specs[i] = draw_call(api);
	batch_run(api, specs, n);
}

static tutti_comm *make_child(struct api *api, const struct family *f)
{
	tutti_comm *child = NOBODY;
	uint64_t before = tutti_comm_sequence(api->comm);
	int me = api->rank;

	if (f->is_dup)
		CHECK_OK(api, tutti_comm_dup(api->comm, &child));
	else
		CHECK_OK(api, tutti_comm_split(api->comm, f->color[me], f->key[me], NULL, &child));
	CHECK(api, tutti_comm_sequence(api->comm) == before + 1,
	      "a split took the sequence from %llu to %llu", (unsigned long long)before,
	      (unsigned long long)tutti_comm_sequence(api->comm));
	CHECK(api, child != NOBODY && (child == NULL) == (f->size == 0),
	      "color %d got the child %p", f->color[me], (void *)child);
	if (child)
		check_ranks(api, f, child);
	return child;
}

/* Memory of the child's own, known to no other rank. */
static void calls_on_its_memory(struct api *api)
{
	struct api world = *api;

	world.arena = NULL;
	buffer_arena_open(&world, 1 << 20);
	some_calls(&world, 3);
	CHECK_OK(api, tutti_barrier(api->comm, NULL));
	if (world.arena)
		buffer_arena_close(&world);
	api->shared = world.shared;
}

/* A child, calls in it, its children. */
static void generations(struct api *api, int depth)
{
	struct family f;
	tutti_comm *child;

	draw_family(api, &f);
	child = make_child(api, &f);
	check_nodes(api, &f, child);
	if (child) {
		struct api world = world_of(api, &f, child);
		some_calls(&world, 4);
		if (random_below(&world.shared, 3) == 0)
			calls_on_its_memory(&world);
		if (depth > 1)
			generations(&world, depth - 1);
		some_calls(&world, 1);
	}
	tutti_comm_destroy(child);
	some_calls(api, 1);
}

#define SIBLINGS 4

/* Made one after the other while a call of the parent is in flight, used in turns, and destroyed in
 * another order on every rank. */
static void siblings(struct api *api)
{
	struct family f[SIBLINGS];
	tutti_comm *child[SIBLINGS];
	struct api world[SIBLINGS];
	float sent = (float)(api->rank + 1), sum = 0;
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};

	CHECK_OK(api, tutti_all_reduce(&sent, &sum, 1, TUTTI_F32, TUTTI_SUM, api->comm, &call));
	for (int i = 0; i < SIBLINGS; i++) {
		draw_family(api, &f[i]);
		child[i] = make_child(api, &f[i]);
		if (child[i])
			world[i] = world_of(api, &f[i], child[i]);
	}
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < SIBLINGS; i++)
			if (child[i])
				some_calls(&world[i], 2);
	CHECK_OK(api, tutti_work_wait(&work, 0));
	CHECK(api, sum == (float)(api->size * (api->size + 1) / 2), "the parent's sum is %g",
	      (double)sum);
	for (int i = 0, first = api->rank; i < SIBLINGS; i++)
		tutti_comm_destroy(child[(first + i) % SIBLINGS]);
}

/* The parent goes first; its children and theirs stay. */
static void orphans(struct api *api)
{
	struct family whole, f;
	tutti_comm *parent, *child, *grandchild = NULL;
	struct api world;

	do
		draw_family(api, &whole);
	while (!whole.is_dup);
	parent = make_child(api, &whole);
	world = world_of(api, &whole, parent);
	draw_family(&world, &f);
	child = make_child(&world, &f);
	tutti_comm_destroy(parent);
	if (!child)
		return;
	world = world_of(&world, &f, child);
	some_calls(&world, 3);
	draw_family(&world, &f);
	grandchild = make_child(&world, &f);
	tutti_comm_destroy(child);
	if (grandchild) {
		world = world_of(&world, &f, grandchild);
		some_calls(&world, 3);
	}
	tutti_comm_destroy(grandchild);
}

static void *call_elsewhere(void *arg)
{
	for (int i = 0; i < 4; i++)
		some_calls(arg, 4);
	return NULL;
}

/* A child at work on another thread, while the parent calls and splits again here. */
static void at_the_same_time(struct api *api)
{
	struct family f;
	pthread_t thread;
	tutti_comm *child;
	struct api world;

	draw_family(api, &f);
	child = make_child(api, &f);
	if (child) {
		world = world_of(api, &f, child);
		world.arena = NULL; /* one thread's at a time */
		CHECK(api, pthread_create(&thread, NULL, call_elsewhere, &world) == 0, "a thread");
	}
	some_calls(api, 4);
	generations(api, 1);
	some_calls(api, 4);
	if (child)
		pthread_join(thread, NULL);
	tutti_comm_destroy(child);
}

void pass_split(struct api *api)
{
	int rounds = api->quick ? 2 : 6;

	for (int i = 0; i < rounds; i++)
		generations(api, 3);
	siblings(api);
	orphans(api);
	at_the_same_time(api);
}

/* Children of whole nodes share memory, whatever their parent's ranks do, and lose it again where
 * theirs span nodes. */
void pass_split_nodes(struct api *api)
{
	tutti_comm *node, *across;
	tutti_stats stats;
	float x[100] = {1};

	CHECK_OK(api, tutti_comm_split(api->comm, tutti_node_rank(api->comm), 0, NULL, &node));
	CHECK_OK(api, tutti_comm_split(api->comm, tutti_local_rank(api->comm), 0, NULL, &across));
	CHECK(api, tutti_num_nodes(node) == 1 && tutti_local_size(node) == tutti_size(node),
	      "%d nodes in a node", tutti_num_nodes(node));
	CHECK(api, tutti_local_size(across) == 1 && tutti_num_nodes(across) == tutti_size(across),
	      "%d ranks of a node across nodes", tutti_local_size(across));
	CHECK_OK(api, tutti_all_reduce(x, x, 100, TUTTI_F32, TUTTI_SUM, node, NULL));
	CHECK_OK(api, tutti_all_reduce(x, x, 100, TUTTI_F32, TUTTI_SUM, across, NULL));
	CHECK(api, tutti_size(across) < tutti_num_nodes(api->comm) || x[0] == (float)api->size,
	      "%d ones are %g", api->size, (double)x[0]);
	CHECK_OK(api, tutti_comm_stats(node, &stats));
	CHECK(api, stats.messages == 0 && (stats.window_bytes > 0 || tutti_size(node) == 1),
	      "in the node: %llu messages, %llu bytes through the window",
	      (unsigned long long)stats.messages, (unsigned long long)stats.window_bytes);
	CHECK_OK(api, tutti_comm_stats(across, &stats));
	CHECK(api, stats.window_bytes == 0 && (stats.messages > 0 || tutti_size(across) == 1),
	      "across: %llu messages, %llu bytes through the window",
	      (unsigned long long)stats.messages, (unsigned long long)stats.window_bytes);
	tutti_comm_destroy(node);
	tutti_comm_destroy(across);
}

static void *die_soon(void *arg)
{
	for (uint64_t i = *(const uint64_t *)arg; i > 0; i--)
		sched_yield();
	_exit(0);
}

/* The last rank's process ends without a word in one of its splits; the others, in whatever round
 * they are, all come to an error. */
void pass_split_death(struct api *api)
{
	uint64_t yields = random_below(&api->own, 4000);
	tutti_status status = TUTTI_OK;
	pthread_t thread;

	close(reports_open(api));
	if (api->rank == api->size - 1)
		CHECK(api, pthread_create(&thread, NULL, die_soon, &yields) == 0, "a thread");
	while (status == TUTTI_OK) {
		tutti_comm *child = NULL;
		float x = 1;
		status = tutti_comm_split(api->comm, api->rank % 2, 0, NULL, &child);
		if (status == TUTTI_OK)
			(void)tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, child, NULL);
		tutti_comm_destroy(child);
	}
	CHECK(api, status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT, "%s: %s",
	      tutti_status_string(status), tutti_comm_error(NULL));
	CHECK(api, strlen(tutti_comm_error(NULL)) > 15, "explained by '%s'",
	      tutti_comm_error(NULL));
	CHECK(api, tutti_comm_status(api->comm) == status, "it does not stick");
	tutti_comm_destroy(api->comm);
	api->comm = NULL;
	if (api->arena)
		buffer_arena_close(api);
}
