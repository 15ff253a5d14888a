/* Random letters between all pairs of ranks, beside a collective: one by one or in groups, as each
 * rank likes. */
#include "api.h"
#include "buffer.h"
#include "data.h"
#include "reports.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LETTERS 30

enum letter_style { ONE_BY_ONE, GROUP, GROUP_HANDLE, GROUP_CALLBACK, LETTER_STYLES };

struct letter {
	struct data data;
	size_t count;
	int from, to, tag, source;
	bool from_anybody; /* its tag is its own */
	struct buffer out, in;
	tutti_work *sent, *received;
};

/* All ranks draw the same letters. A receive from any rank has a tag that no other letter of any
 * round has: a rank that is a round ahead may send already. */
static void draw(struct api *api, struct letter *letters, int round)
{
	for (int i = 0; i < LETTERS; i++) {
		struct letter *l = &letters[i];
		uint64_t size = random_below(&api->shared, 12);
		*l = (struct letter){.from = (int)random_below(&api->shared, (uint64_t)api->size),
				     .to = (int)random_below(&api->shared, (uint64_t)api->size),
				     .tag = (int)random_below(&api->shared, 3),
				     .from_anybody = random_below(&api->shared, 4) == 0};
		if (l->from_anybody)
			l->tag = 100 + round * LETTERS + i;
		l->count = size < 7    ? random_below(&api->shared, 200)
			   : size < 11 ? random_below(&api->shared, 5000)
				       : random_below(&api->shared, 150000);
		l->data = (struct data){.kind = DATA_BITS,
					.seed = random_next(&api->shared),
					.dtype = (tutti_dtype)random_below(&api->shared, DTYPES),
					.ranks = api->size};
	}
}

static enum buffer_kind any_kind(struct api *api)
{
	uint64_t r = random_below(&api->own, 4);
	if (api->device && r < 2)
		return (enum buffer_kind)api->device;
	return r == 3 ? BUFFER_SHARED : BUFFER_HOST;
}

static size_t bytes_of(const struct letter *l)
{
	return l->count * data_bytes(l->data.dtype);
}

static void make_room(struct api *api, struct letter *l)
{
	char *bytes = malloc(bytes_of(l) + 1);
	CHECK(api, bytes, "no memory");
	if (l->to == api->rank)
		buffer_create(&l->in, api, any_kind(api), bytes_of(l));
	if (l->from == api->rank) {
		buffer_create(&l->out, api, any_kind(api), bytes_of(l));
		data_fill(&l->data, l->from, 0, l->count, bytes);
		buffer_write(&l->out, 0, bytes, bytes_of(l));
	}
	free(bytes);
}

static void issue(struct api *api, struct letter *l, bool sends)
{
	tutti_call call = {.tag = l->tag, .source = &l->source};
	call.work = sends ? &l->sent : &l->received;
	if (sends)
		CHECK_OK(api,
			 tutti_send(l->out.data, l->count, l->data.dtype, l->to, api->comm, &call));
	else
		CHECK_OK(api, tutti_recv(l->in.data, l->count, l->data.dtype,
					 l->from_anybody ? TUTTI_ANY : l->from, api->comm, &call));
}

/* Sends in order, receives in order, but each rank mixes the two as it likes; a sum in between. */
static void issue_all(struct api *api, struct letter *letters, int32_t *sum)
{
	int next[2] = {0, 0}, at = (int)random_below(&api->own, LETTERS);
	for (int k = 0; k < 2 * LETTERS; k++) {
		int sends = next[0] == LETTERS   ? 1
			    : next[1] == LETTERS ? 0
						 : (int)random_below(&api->own, 2);
		struct letter *l = &letters[next[sends]++];
		if ((sends ? l->from : l->to) == api->rank)
			issue(api, l, sends);
		if (k == at)
			CHECK_OK(api, tutti_all_reduce(sum, sum, 1, TUTTI_I32, TUTTI_SUM, api->comm,
						       NULL));
	}
}

struct ending {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int times;
	tutti_status status;
};

static void note_ending(void *arg, tutti_status status)
{
	struct ending *e = arg;
	pthread_mutex_lock(&e->lock);
	e->times++;
	e->status = status;
	pthread_cond_signal(&e->changed);
	pthread_mutex_unlock(&e->lock);
}

static void await_ending(struct api *api, struct ending *e)
{
	struct timespec deadline;
	int failed = 0;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += API_WAIT_S;
	pthread_mutex_lock(&e->lock);
	while (e->times == 0 && !failed)
		failed = pthread_cond_timedwait(&e->changed, &e->lock, &deadline);
	pthread_mutex_unlock(&e->lock);
	CHECK(api, !failed, "a group's callback never came");
	CHECK_OK(api, e->status);
}

static void end_group(struct api *api, enum letter_style style)
{
	struct ending ending = {.lock = PTHREAD_MUTEX_INITIALIZER,
				.changed = PTHREAD_COND_INITIALIZER};
	tutti_work *work = NULL;
	tutti_call call = {0};

	if (style == GROUP_HANDLE)
		call.work = &work;
	if (style == GROUP_CALLBACK) {
		call.done = note_ending;
		call.done_arg = &ending;
	}
	CHECK_OK(api, tutti_group_end(style == GROUP ? NULL : &call));
	CHECK_OK(api, tutti_work_wait(&work, 0));
	if (style == GROUP_CALLBACK)
		await_ending(api, &ending);
}

static void check_letter(struct api *api, struct letter *l)
{
	char *want = malloc(bytes_of(l) + 1), *got = malloc(bytes_of(l) + 1);
	CHECK(api, want && got, "no memory");
	if (l->to == api->rank) {
		data_fill(&l->data, l->from, 0, l->count, want);
		buffer_read(&l->in, 0, got, bytes_of(l));
		CHECK(api, memcmp(want, got, bytes_of(l)) == 0,
		      "%zu %s of rank %d, tag %d: other bytes arrived", l->count,
		      data_dtype_name(l->data.dtype), l->from, l->tag);
		CHECK(api, l->source == l->from, "the source is %d, should be %d", l->source,
		      l->from);
		CHECK(api, buffer_guards_hold(&l->in), "bytes beside a receive were written");
		buffer_destroy(&l->in);
	}
	if (l->from == api->rank)
		buffer_destroy(&l->out);
	free(want);
	free(got);
}

static void one_round(struct api *api, int round)
{
	struct letter letters[LETTERS];
	enum letter_style style = (enum letter_style)random_below(&api->own, LETTER_STYLES);
	uint64_t sequence = tutti_comm_sequence(api->comm);
	int32_t sum = api->rank + 1;

	draw(api, letters, round);
	for (int i = 0; i < LETTERS; i++)
		make_room(api, &letters[i]);
	if (style != ONE_BY_ONE)
		CHECK_OK(api, tutti_group_begin());
	issue_all(api, letters, &sum);
	if (style != ONE_BY_ONE)
		end_group(api, style);
	for (int i = LETTERS - 1; i >= 0; i--) {
		bool is_apart = style == ONE_BY_ONE;
		CHECK(api, is_apart || (!letters[i].sent && !letters[i].received),
		      "a group's member has a handle");
		CHECK_OK(api, tutti_work_wait(&letters[i].received, 0));
		CHECK_OK(api, tutti_work_wait(&letters[i].sent, 0));
	}
	CHECK(api, sum == api->size * (api->size + 1) / 2, "the sum is %d", (int)sum);
	CHECK(api, tutti_comm_sequence(api->comm) == sequence + 1, "letters used sequence numbers");
	for (int i = 0; i < LETTERS; i++)
		check_letter(api, &letters[i]);
}

void pass_messages(struct api *api)
{
	for (int round = 0; round < (api->quick ? 3 : 8); round++)
		one_round(api, round);
}

/* The last rank dies before any other has spoken with it: one sends to it, one waits for it, others
 * wait for any rank. */
void pass_gone_peer(struct api *api)
{
	enum { COUNT = 100000 };
	int dead = api->size - 1, source;
	float *x = calloc(COUNT, sizeof *x);
	tutti_call call = {.source = &source};
	tutti_status status;
	int fd = reports_open(api);

	CHECK(api, x, "no memory");
	if (api->rank == dead)
		_exit(0);
	close(fd);
	if (api->rank % 3 == 0)
		status = tutti_send(x, COUNT, TUTTI_F32, dead, api->comm, &call);
	else
		status = tutti_recv(x, COUNT, TUTTI_F32, api->rank % 3 == 1 ? dead : TUTTI_ANY,
				    api->comm, &call);
	CHECK(api, status == TUTTI_ERR_PEER, "%s: %s", tutti_status_string(status),
	      tutti_comm_error(api->comm));
	CHECK(api, tutti_send(x, 1, TUTTI_F32, 0, api->comm, NULL) == status, "it is not sticky");
	free(x);
	tutti_comm_destroy(api->comm);
	api->comm = NULL;
	if (api->arena)
		buffer_arena_close(api);
}
