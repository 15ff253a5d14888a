/* Bad arguments. */
#include "batch.h"

#include <string.h>

#define COUNT 100

/* A status that must be an error of this kind, with a message, and no trace in the communicator.
 */
static void expect_error(struct api *api, tutti_status status, tutti_status wanted,
			 uint64_t sequence, const char *what)
{
	const char *message = tutti_comm_error(NULL);
	size_t length = strlen(message);

	CHECK(api, status == wanted, "%s: %s, should be %s", what, tutti_status_string(status),
	      tutti_status_string(wanted));
	CHECK(api, length > 15 && strchr(message, ' '), "%s is explained by '%s'", what, message);
	CHECK(api, tutti_comm_sequence(api->comm) == sequence, "%s used a sequence number", what);
	CHECK(api, tutti_comm_status(api->comm) == TUTTI_OK, "%s failed the communicator", what);
}

#define INVALID(call) expect_error(api, call, TUTTI_ERR_INVALID, sequence, #call)

static void bad_pointers(struct api *api, uint64_t sequence)
{
	float a[COUNT * API_RANKS] = {0}, b[COUNT * API_RANKS] = {0};
	tutti_comm *comm = api->comm;

	INVALID(tutti_all_reduce(a, b, COUNT, TUTTI_F32, TUTTI_SUM, NULL, NULL));
	INVALID(tutti_barrier(NULL, NULL));
	INVALID(tutti_all_reduce(NULL, b, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL));
	INVALID(tutti_all_reduce(a, NULL, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL));
	INVALID(tutti_all_gather(NULL, b, COUNT, TUTTI_F32, comm, NULL));
	INVALID(tutti_all_gather(a, NULL, COUNT, TUTTI_F32, comm, NULL));
	INVALID(tutti_reduce_scatter(NULL, b, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL));
	INVALID(tutti_reduce_scatter(a, NULL, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL));
	INVALID(tutti_broadcast(a, NULL, COUNT, TUTTI_F32, 0, comm, NULL));
	if (api->rank == 0)
		INVALID(tutti_broadcast(NULL, b, COUNT, TUTTI_F32, 0, comm, NULL));
}

static void bad_numbers(struct api *api, uint64_t sequence)
{
	float a[COUNT * API_RANKS] = {0}, b[COUNT * API_RANKS] = {0};
	tutti_comm *comm = api->comm;
	size_t half = SIZE_MAX / 2 + 1, wraps = SIZE_MAX / sizeof(float) + 2;

	INVALID(tutti_broadcast(a, b, COUNT, TUTTI_F32, -1, comm, NULL));
	INVALID(tutti_broadcast(a, b, COUNT, TUTTI_F32, api->size, comm, NULL));
	INVALID(tutti_all_reduce(a, b, COUNT, (tutti_dtype)-1, TUTTI_SUM, comm, NULL));
	INVALID(tutti_all_reduce(a, b, COUNT, (tutti_dtype)99, TUTTI_SUM, comm, NULL));
	INVALID(tutti_all_gather(a, b, COUNT, (tutti_dtype)99, comm, NULL));
	INVALID(tutti_all_reduce(a, b, COUNT, TUTTI_F32, (tutti_op)-1, comm, NULL));
	INVALID(tutti_all_reduce(a, b, COUNT, TUTTI_F32, (tutti_op)99, comm, NULL));
	INVALID(tutti_all_reduce(a, b, COUNT, TUTTI_F32, TUTTI_BXOR, comm, NULL));
	INVALID(tutti_reduce_scatter(a, b, COUNT, TUTTI_BF16, TUTTI_BAND, comm, NULL));
	INVALID(tutti_all_reduce(a, b, wraps, TUTTI_F32, TUTTI_SUM, comm, NULL));
	INVALID(tutti_all_reduce(a, b, half, TUTTI_F64, TUTTI_SUM, comm, NULL));
	INVALID(tutti_broadcast(a, b, half, TUTTI_F64, 0, comm, NULL));
	INVALID(tutti_all_gather(a, b, half, TUTTI_U16, comm, NULL));
	INVALID(tutti_reduce_scatter(a, b, half, TUTTI_U16, TUTTI_SUM, comm, NULL));
	if (api->size > 1)
		INVALID(tutti_all_gather(a, b, half, TUTTI_U8, comm, NULL));
}

static void bad_overlaps(struct api *api, uint64_t sequence)
{
	float a[COUNT * (API_RANKS + 1)] = {0};
	char *bytes = (char *)a;
	size_t own = COUNT * (size_t)api->rank;
	tutti_comm *comm = api->comm;

	INVALID(tutti_all_reduce(a, a + 1, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL));
	INVALID(tutti_all_reduce(a + COUNT - 1, a, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL));
	INVALID(tutti_all_reduce(bytes + 1, bytes, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL));
	if (api->rank == 0) /* elsewhere send is not looked at */
		INVALID(tutti_broadcast(a, a + 1, COUNT, TUTTI_F32, 0, comm, NULL));
	INVALID(tutti_all_gather(a + own + 1, a, COUNT, TUTTI_F32, comm, NULL));
	INVALID(tutti_reduce_scatter(a, a + own + 1, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL));
	if (api->size == 1)
		return;
	own = COUNT * (size_t)((api->rank + 1) % api->size); /* another rank's block */
	INVALID(tutti_all_gather(a + own, a, COUNT, TUTTI_F32, comm, NULL));
	INVALID(tutti_reduce_scatter(a, a + own, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL));
}

static void bad_setup(struct api *api, uint64_t sequence)
{
	tutti_config config = {.rank = 3, .world_size = 2, .rendezvous = "tcp://127.0.0.1:1"};
	tutti_comm *comm = NULL;
	int inside = 0;
	void *memory;

	INVALID(tutti_init(NULL, NULL));
	INVALID(tutti_init(&comm, &config));
	CHECK(api, comm == NULL, "a failed tutti_init stored a communicator");
	INVALID(tutti_init_all(NULL, 2, NULL));
	INVALID(tutti_init_all(&comm, 0, NULL));
	INVALID(tutti_mem_free(&inside));
	INVALID(tutti_mem_alloc(NULL, 100, api->comm));
	CHECK_OK(api, tutti_group_begin());
	INVALID(tutti_mem_alloc(&memory, 100, api->comm));
	INVALID(tutti_group_end(NULL));
}

static void bad_ops(struct api *api, uint64_t sequence)
{
	float a[4] = {0}, b[4];
	tutti_op op = TUTTI_SUM;

	INVALID(tutti_op_create(&op, "", NULL, NULL));
	INVALID(tutti_op_create_scaled(&op, NULL, TUTTI_F32));
	INVALID(tutti_op_create_scaled(NULL, a, TUTTI_F32));
	CHECK(api, tutti_op_create_scaled(&op, a, TUTTI_F32) == TUTTI_OK, "op_create_scaled: %s",
	      tutti_comm_error(NULL));
	INVALID(tutti_all_reduce(a, b, 2, TUTTI_F64, op, api->comm, NULL));
	tutti_op_destroy(op);
	INVALID(tutti_all_reduce(a, b, 4, TUTTI_F32, op, api->comm, NULL));
}

/* Only some ranks err: nothing was sent, so the others never notice. */
void pass_errors(struct api *api)
{
	struct call_spec spec = {.name = CALL_ALL_REDUCE, .count = 1000};

	spec.data = (struct data){
		.kind = DATA_EXACT, .dtype = TUTTI_F32, .op = TUTTI_SUM, .ranks = api->size};
	for (int round = 0; round < 4; round++) {
		uint64_t sequence = tutti_comm_sequence(api->comm);
		if (round == 0 || api->rank % 2 == round % 2)
			bad_pointers(api, sequence);
		if (round == 0 || api->rank % 2 != round % 2)
			bad_numbers(api, sequence);
		if (round == 0 || api->rank % 3 == 0)
			bad_overlaps(api, sequence);
		if (round == 0 || api->rank % 3 == 1)
			bad_ops(api, sequence);
		if (round == 0)
			bad_setup(api, sequence);
		spec.data.seed = random_next(&api->shared);
		batch_simple(api, &spec);
	}
}
