/* The passes over collectives x dtypes x ops x counts. */
#include "batch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct call_spec make_spec(struct api *api, enum call_name name, tutti_dtype dtype,
				  tutti_op op, size_t count)
{
	struct call_spec spec = {.name = name, .count = count};
	bool reduces = name <= CALL_REDUCE;

	spec.data = (struct data){.kind = reduces ? DATA_EXACT : DATA_BITS,
				  .seed = random_next(&api->shared),
				  .dtype = dtype,
				  .op = op,
				  .ranks = api->size};
	if (name == CALL_REDUCE)
		spec.root = (int)random_below(&api->shared, (uint64_t)api->size);
	return spec;
}

struct list {
	struct call_spec *specs;
	int n, room;
};

static void list_add(struct api *api, struct list *list, struct call_spec spec)
{
	if (list->n == list->room) {
		list->room = list->room ? 2 * list->room : 256;
		list->specs = realloc(list->specs, (size_t)list->room * sizeof *list->specs);
		CHECK(api, list->specs, "no memory");
	}
	list->specs[list->n++] = spec;
}

static void list_run(struct api *api, struct list *list, int batch_most)
{
	for (int i = list->n - 1; i > 0; i--) {
		int j = (int)random_below(&api->shared, (uint64_t)i + 1);
		struct call_spec swap = list->specs[i];
		list->specs[i] = list->specs[j];
		list->specs[j] = swap;
	}
	for (int i = 0; i < list->n;) {
		int n = 1 + (int)random_below(&api->shared, (uint64_t)batch_most);
		n = n > list->n - i ? list->n - i : n;
		batch_run(api, list->specs + i, n);
		i += n;
	}
	free(list->specs);
}

/* All of a quick run's calls are drawn, by the same lots on every rank. */
static bool drawn(struct api *api, uint64_t one_in)
{
	return !api->quick || random_below(&api->shared, one_in) == 0;
}

/* What fits into the window's line (48 bytes) and just does not, whatever the element's size. */
static const size_t small_counts[] = {0, 1, 2, 3, 5, 7, 11, 12, 13, 24, 25, 47, 48, 49, 97, 1000};
#define SMALL_COUNTS (sizeof small_counts / sizeof small_counts[0])

static void add_reductions(struct api *api, struct list *list, tutti_dtype dtype, tutti_op op,
			   enum data_maker maker)
{
	for (int name = CALL_ALL_REDUCE; name <= CALL_REDUCE; name++) {
		for (size_t i = 0; i < SMALL_COUNTS; i++) {
			/* Every sixth, so that all counts meet all dtypes, though not all ops. */
			bool taken = random_below(&api->shared, 6) == 0;
			if (!taken || !drawn(api, 6))
				continue;
			struct call_spec spec =
				make_spec(api, (enum call_name)name, dtype, op, small_counts[i]);
			spec.data.maker = maker;
			list_add(api, list, spec);
		}
	}
}

static void add_movements(struct api *api, struct list *list, tutti_dtype dtype)
{
	for (size_t i = 0; i < SMALL_COUNTS; i++) {
		if (drawn(api, 6))
			list_add(
				api, list,
				make_spec(api, CALL_ALL_GATHER, dtype, TUTTI_SUM, small_counts[i]));
		for (int root = 0; root < api->size; root++) {
			struct call_spec spec =
				make_spec(api, CALL_BROADCAST, dtype, TUTTI_SUM, small_counts[i]);
			spec.root = root;
			if (random_below(&api->shared, 3) == 0 && drawn(api, 6))
				list_add(api, list, spec);
		}
	}
	list_add(api, list, make_spec(api, CALL_BARRIER, dtype, TUTTI_SUM, 0));
}

void pass_small(struct api *api)
{
	struct list list = {0};

	for (int dtype = 0; dtype < DTYPES; dtype++) {
		for (int op = 0; op < OPS_BUILT_IN; op++)
			if (data_fits((tutti_op)op, (tutti_dtype)dtype))
				add_reductions(api, &list, (tutti_dtype)dtype, (tutti_op)op,
					       DATA_BUILT_IN);
		add_reductions(api, &list, (tutti_dtype)dtype, TUTTI_SUM, DATA_USER);
		add_reductions(api, &list, (tutti_dtype)dtype, TUTTI_SUM, DATA_SCALED);
		add_movements(api, &list, (tutti_dtype)dtype);
	}
	list_run(api, &list, 5);
}

static tutti_op random_op(struct api *api, tutti_dtype dtype)
{
	tutti_op op;
	do
		op = (tutti_op)random_below(&api->shared, OPS_BUILT_IN);
	while (!data_fits(op, dtype));
	return op;
}

static void add_large(struct api *api, struct list *list, tutti_dtype dtype)
{
	size_t count = 39000 + random_below(&api->shared, 3000), n = (size_t)api->size;
	struct call_spec spec;

	list_add(api, list, make_spec(api, CALL_ALL_REDUCE, dtype, TUTTI_SUM, count));
	list_add(api, list, make_spec(api, CALL_ALL_REDUCE, dtype, random_op(api, dtype), count));
	list_add(api, list,
		 make_spec(api, CALL_REDUCE_SCATTER, dtype, random_op(api, dtype), count / n));
	spec = make_spec(api, (enum call_name)random_below(&api->shared, CALL_REDUCE + 1), dtype,
			 TUTTI_SUM, count / n);
	spec.data.maker = random_below(&api->shared, 2) ? DATA_USER : DATA_SCALED;
	list_add(api, list, spec);
	list_add(api, list, make_spec(api, CALL_REDUCE, dtype, random_op(api, dtype), count));
	list_add(api, list, make_spec(api, CALL_ALL_GATHER, dtype, TUTTI_SUM, count / n));
	spec = make_spec(api, CALL_BROADCAST, dtype, TUTTI_SUM, count);
	spec.root = (int)random_below(&api->shared, n);
	list_add(api, list, spec);
}

/* More than all staging and scratch memory, and no round number. */
static void add_largest(struct api *api, struct list *list)
{
	size_t n = (size_t)api->size, count = (n > 4 ? 262144 : 1048576) - 3;
	struct call_spec spec;

	list_add(api, list, make_spec(api, CALL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, count));
	list_add(api, list, make_spec(api, CALL_ALL_REDUCE, TUTTI_BF16, TUTTI_AVG, count));
	list_add(api, list, make_spec(api, CALL_REDUCE_SCATTER, TUTTI_I64, TUTTI_MAX, count / n));
	list_add(api, list, make_spec(api, CALL_ALL_GATHER, TUTTI_F32, TUTTI_SUM, count / n));
	spec = make_spec(api, CALL_BROADCAST, TUTTI_F64, TUTTI_SUM, count);
	spec.root = api->size - 1;
	list_add(api, list, spec);
}

void pass_large(struct api *api)
{
	struct list list = {0};
	uint64_t n = (uint64_t)api->size;

	/* What checking costs grows with n * n: a sample, another one for every n and seed. */
	for (int dtype = 0; dtype < DTYPES; dtype++)
		if (random_below(&api->shared, n) < 2 && drawn(api, 3))
			add_large(api, &list, (tutti_dtype)dtype);
	add_largest(api, &list);
	list_run(api, &list, 3);
}

/* Rounded sums depend on the algorithm, but never on the rank. */
static void same_bits(struct api *api, const struct call_spec *spec)
{
	size_t bytes = spec->count * data_bytes(spec->data.dtype);
	char *buf = malloc(bytes + 1), *own = malloc(bytes + 1), text[100];
	uint64_t mine, all[API_RANKS];

	CHECK(api, buf && own, "no memory");
	data_fill(&spec->data, api->rank, 0, spec->count, own);
	memcpy(buf, own, bytes);
	tutti_status status = tutti_all_reduce(buf, buf, spec->count, spec->data.dtype,
					       spec->data.op, api->comm, NULL);
	CHECK_OK(api, status);
	memcpy(own, buf, bytes);
	mine = data_hash(own, bytes);
	CHECK_OK(api, tutti_all_gather(&mine, all, 1, TUTTI_U64, api->comm, NULL));
	for (int rank = 0; rank < api->size; rank++)
		CHECK(api, all[rank] == mine, "%s: ranks %d and %d have different bits",
		      call_describe(spec, text), api->rank, rank);
	free(own);
	free(buf);
}

void pass_bits(struct api *api)
{
	static const size_t counts[] = {1, 5, 12, 100, 4097, 50003};
	static const tutti_dtype floats[] = {TUTTI_F32,  TUTTI_F64,     TUTTI_F16,
					     TUTTI_BF16, TUTTI_F8_E4M3, TUTTI_F8_E5M2};

	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		for (size_t f = 0; f < sizeof floats / sizeof floats[0]; f++) {
			tutti_op op = random_below(&api->shared, 2) ? TUTTI_SUM : TUTTI_AVG;
			if (counts[i] > 10000 && random_below(&api->shared, 3))
				continue;
			struct call_spec spec =
				make_spec(api, CALL_ALL_REDUCE, floats[f], op, counts[i]);
			spec.data.kind = DATA_ROUNDED;
			if (api->exact)
				batch_run(api, &spec, 1);
			else
				same_bits(api, &spec);
		}
	}
}

/* Ever so many at once, small and large mixed. */
static void many_at_once(struct api *api)
{
	struct call_spec specs[BATCH_MOST];

	for (int i = 0; i < BATCH_MOST; i++) {
		enum call_name name = (enum call_name)random_below(&api->shared, CALLS);
		tutti_dtype dtype = (tutti_dtype)random_below(&api->shared, DTYPES);
		size_t count = random_below(&api->shared, i % 8 ? 50 : 20000);
		if (name == CALL_BARRIER)
			count = 0;
		specs[i] = make_spec(api, name, dtype, random_op(api, dtype), count);
		specs[i].root = (int)random_below(&api->shared, (uint64_t)api->size);
		if (name <= CALL_REDUCE)
			own_op_draw(&specs[i].data, &api->shared);
	}
	batch_run(api, specs, BATCH_MOST);
}

/* A chain: each call is issued by the callback of the one before. */
struct chain {
	struct api *api;
	int links;
	double value;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool has_ended;
};

static void next_link(void *arg, tutti_status status)
{
	struct chain *chain = arg;
	struct api *api = chain->api;
	tutti_call call = {.done = next_link, .done_arg = chain};

	CHECK_OK(api, status);
	if (--chain->links > 0) {
		CHECK_OK(api, tutti_all_reduce(&chain->value, &chain->value, 1, TUTTI_F64,
					       TUTTI_AVG, api->comm, &call));
		return;
	}
	pthread_mutex_lock(&chain->lock);
	chain->has_ended = true;
	pthread_cond_signal(&chain->ended);
	pthread_mutex_unlock(&chain->lock);
}

static void calls_out_of_callbacks(struct api *api)
{
	struct chain chain = {.api = api,
			      .links = 20,
			      .value = api->rank,
			      .lock = PTHREAD_MUTEX_INITIALIZER,
			      .ended = PTHREAD_COND_INITIALIZER};
	tutti_call call = {.done = next_link, .done_arg = &chain};
	double mean = (api->size - 1) / 2.0;
	struct timespec deadline;
	int failed = 0;

	CHECK_OK(api, tutti_all_reduce(&chain.value, &chain.value, 1, TUTTI_F64, TUTTI_AVG,
				       api->comm, &call));
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += API_WAIT_S;
	pthread_mutex_lock(&chain.lock);
	while (!chain.has_ended && !failed)
		failed = pthread_cond_timedwait(&chain.ended, &chain.lock, &deadline);
	pthread_mutex_unlock(&chain.lock);
	CHECK(api, !failed, "the chain of calls never ends");
	CHECK(api, chain.value == mean, "the chain ends with %g, should be %g", chain.value, mean);
}

void pass_flight(struct api *api)
{
	for (int i = 0; i < (api->quick ? 2 : 6); i++)
		many_at_once(api);
	calls_out_of_callbacks(api);
}

static uint64_t staged_by(struct api *api, float *x, size_t count)
{
	tutti_stats before = {0}, after = {0};

	for (size_t i = 0; i < count; i++)
		x[i] = (float)(api->rank + 1);
	CHECK_OK(api, tutti_comm_stats(api->comm, &before));
	CHECK_OK(api, tutti_all_reduce(x, x, count, TUTTI_F32, TUTTI_SUM, api->comm, NULL));
	CHECK_OK(api, tutti_comm_stats(api->comm, &after));
	for (size_t i = 0; i < count; i++)
		CHECK(api, x[i] == (float)(api->size * (api->size + 1) / 2), "element %zu is %g", i,
		      (double)x[i]);
	return after.staged_bytes - before.staged_bytes;
}

void pass_zero_copy(struct api *api)
{
	enum { FLOATS = 100000 };
	float *ordinary = malloc(FLOATS * sizeof *ordinary);

	CHECK(api, api->arena && ordinary, "no memory of tutti_mem_alloc");
	CHECK(api, staged_by(api, ordinary, FLOATS) > 0, "ordinary memory is not staged");
	CHECK(api, staged_by(api, (float *)api->arena + 64, FLOATS) == 0,
	      "shared memory is staged");
	free(ordinary);
}
