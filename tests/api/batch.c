/* Issuing, completing and checking calls in all the ways there are. */
#include "batch.h"

#include "../cuda/gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How this rank makes a call. */
enum call_mode {
	MODE_NULL,        /* blocking, call NULL                                            */
	MODE_ZERO,        /* blocking, an empty call                                        */
	MODE_WAIT,        /* a work, waited for                                             */
	MODE_SHORT_WAITS, /* a work, waited for a millisecond at a time                     */
	MODE_POLL,        /* a work, tested until done, then waited for                     */
	MODE_DONE,        /* no work, a callback                                            */
	MODE_RELEASE,     /* a work, released at once, and a callback                       */
	MODES,
};

/* What a callback leaves behind. */
struct notice {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int times;
	tutti_status status;
};

struct flight {
	const struct call_spec *spec;
	enum call_mode mode;
	bool in_place, skipped, in_stream;
	struct buffer send, recv; /* in place: recv has both, send nothing                 */
	size_t send_bytes, recv_bytes, own; /* own: offset of the own block where it is shared */
	const char *send_ptr;
	char *recv_ptr;
	tutti_op op;
	bool op_is_open; /* made for this call, and not destroyed yet */
	tutti_work *work;
	struct notice notice;
};

const char *call_describe(const struct call_spec *spec, char *text)
{
	static const char *const names[] = {"all_reduce", "reduce_scatter", "reduce",
					    "all_gather", "broadcast",      "barrier"};
	bool reduces = spec->name <= CALL_REDUCE;
	snprintf(text, 100, "%s of %zu %s%s%s, root %d", names[spec->name], spec->count,
		 data_dtype_name(spec->data.dtype), reduces ? ", " : "",
		 reduces ? data_op_name(&spec->data) : "", spec->root);
	return text;
}

static void notice_done(void *arg, tutti_status status)
{
	struct notice *notice = arg;
	pthread_mutex_lock(&notice->lock);
	notice->times++;
	notice->status = status;
	pthread_cond_signal(&notice->changed);
	pthread_mutex_unlock(&notice->lock);
}

static void notice_wait(struct api *api, struct notice *notice, const char *what)
{
	struct timespec deadline;
	int failed = 0;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += API_WAIT_S;
	pthread_mutex_lock(&notice->lock);
	while (notice->times == 0 && !failed)
		failed = pthread_cond_timedwait(&notice->changed, &notice->lock, &deadline);
	pthread_mutex_unlock(&notice->lock);
	CHECK(api, !failed, "%s: its callback never came", what);
	CHECK_OK(api, notice->status);
}

/* The ranks of a call have GPUs' memory, or none has: kernels wait for kernels. */
static enum buffer_kind random_kind(struct api *api, const struct call_spec *spec)
{
	uint64_t r = random_below(&api->own, 4);
	enum call_style shared_memory = spec->shared_memory;
	if (shared_memory == STYLE_ALL)
		return BUFFER_SHARED;
	if (api->device == BUFFER_CUDA)
		return spec->data.seed % 2 ? BUFFER_CUDA : r == 3 ? BUFFER_SHARED : BUFFER_HOST;
	if (shared_memory == STYLE_NONE && !api->device)
		return BUFFER_HOST;
	if (api->device && r < 2)
		return (enum buffer_kind)api->device;
	return r == 3 ? BUFFER_SHARED : BUFFER_HOST;
}

static void sizes_of(struct api *api, struct flight *f)
{
	size_t bytes = f->spec->count * data_bytes(f->spec->data.dtype);
	size_t all = bytes * (size_t)api->size;
	bool gathers = f->spec->name == CALL_ALL_GATHER,
	     scatters = f->spec->name == CALL_REDUCE_SCATTER;

	f->send_bytes = scatters ? all : bytes;
	f->recv_bytes = gathers ? all : bytes;
	if (f->spec->name == CALL_REDUCE && api->rank != f->spec->root)
		f->recv_bytes = 0;
	f->own = gathers || scatters ? bytes * (size_t)api->rank : 0;
}

/* Both pointers; the buffers of one call are of one kind as far as the CPU may not touch it. */
static void make_buffers(struct api *api, struct flight *f)
{
	enum buffer_kind kind = random_kind(api, f->spec), other = random_kind(api, f->spec);
	if (f->spec->data.maker == DATA_USER) { /* host memory only */
		kind = buffer_is_device(kind) ? BUFFER_HOST : kind;
		other = buffer_is_device(other) ? BUFFER_HOST : other;
	}
	bool mixed = buffer_is_device(kind) != buffer_is_device(other);

	sizes_of(api, f);
	if (f->in_place) {
		size_t larger = f->send_bytes > f->recv_bytes ? f->send_bytes : f->recv_bytes;
		buffer_create(&f->recv, api, kind, larger);
		f->send_ptr = f->recv.data + (f->send_bytes < larger ? f->own : 0);
		f->recv_ptr = f->recv.data + (f->recv_bytes < larger ? f->own : 0);
		return;
	}
	buffer_create(&f->send, api, kind, f->send_bytes);
	buffer_create(&f->recv, api, mixed ? kind : other, f->recv_bytes);
	f->send_ptr = f->send.data;
	f->recv_ptr = f->recv.data;
}

/* What this rank contributes, as the library finds it at send_ptr. */
static void contribution(const struct api *api, const struct flight *f, int rank, char *out)
{
	const struct call_spec *s = f->spec;
	size_t elements = f->send_bytes / data_bytes(s->data.dtype);

	(void)api;
	data_fill(&s->data, rank, 0, elements, out);
}

static void fill_buffers(struct api *api, struct flight *f)
{
	struct buffer *b = f->in_place ? &f->recv : &f->send;
	char *bytes = malloc(f->send_bytes + 1);

	CHECK(api, bytes, "no memory");
	contribution(api, f, api->rank, bytes);
	buffer_write(b, (size_t)(f->send_ptr - b->data), bytes, f->send_bytes);
	free(bytes);
}

static tutti_status issue(struct api *api, struct flight *f, const tutti_call *call)
{
	const struct call_spec *s = f->spec;
	tutti_dtype dtype = s->data.dtype;

	switch (s->name) {
	case CALL_ALL_REDUCE:
		return tutti_all_reduce(f->send_ptr, f->recv_ptr, s->count, dtype, f->op, api->comm,
					call);
	case CALL_REDUCE_SCATTER:
		return tutti_reduce_scatter(f->send_ptr, f->recv_ptr, s->count, dtype, f->op,
					    api->comm, call);
	case CALL_REDUCE: /* off the root a recv is not looked at */
		return tutti_reduce(f->send_ptr, f->recv_ptr, s->count, dtype, f->op, s->root,
				    api->comm, call);
	case CALL_ALL_GATHER:
		return tutti_all_gather(f->send_ptr, f->recv_ptr, s->count, dtype, api->comm, call);
	case CALL_BROADCAST:
		return tutti_broadcast(f->send_ptr, f->recv_ptr, s->count, dtype, s->root,
				       api->comm, call);
	default:
		return tutti_barrier(api->comm, call);
	}
}

static void close_op(struct flight *f)
{
	if (f->op_is_open)
		own_op_close(&f->spec->data, f->op);
	f->op_is_open = false;
}

static void start(struct api *api, struct flight *f)
{
	char text[100];
	uint64_t before = tutti_comm_sequence(api->comm);
	tutti_call call = {.stream = f->in_stream ? api->stream : NULL};
	bool has_done = f->mode == MODE_DONE || f->mode == MODE_RELEASE;

	if (f->mode >= MODE_WAIT && f->mode != MODE_DONE)
		call.work = &f->work;
	if (has_done) {
		call.done = notice_done;
		call.done_arg = &f->notice;
	}
	tutti_status status = issue(api, f, f->mode == MODE_NULL ? NULL : &call);
	if (status == TUTTI_ERR_UNSUPPORTED && api->forced) {
		CHECK(api, tutti_comm_sequence(api->comm) == before,
		      "%s is unsupported and took a sequence number", call_describe(f->spec, text));
		f->skipped = true;
		return;
	}
	CHECK(api, status == TUTTI_OK, "%s: %s: %s", call_describe(f->spec, text),
	      tutti_status_string(status), tutti_comm_error(NULL));
	CHECK(api, tutti_comm_sequence(api->comm) == before + 1,
	      "%s took the sequence from %llu to %llu", call_describe(f->spec, text),
	      (unsigned long long)before, (unsigned long long)tutti_comm_sequence(api->comm));
	if (f->mode == MODE_RELEASE)
		tutti_work_release(&f->work);
	if (random_below(&api->own, 2)) /* its calls in flight keep an op */
		close_op(f);
}

static void poll_work(struct api *api, struct flight *f)
{
	struct timespec begin, now;
	int is_done = 0;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		CHECK_OK(api, tutti_work_test(f->work, &is_done));
		clock_gettime(CLOCK_MONOTONIC, &now);
		CHECK(api, now.tv_sec - begin.tv_sec < API_WAIT_S, "a work is never done");
	} while (!is_done);
}

static void wait_shortly(struct api *api, struct flight *f)
{
	tutti_status status = TUTTI_IN_PROGRESS;

	for (int i = 0; status == TUTTI_IN_PROGRESS; i++) {
		CHECK(api, i < API_WAIT_S * 1000, "a work never ends");
		CHECK(api, f->work, "a wait that was in progress took the handle");
		status = tutti_work_wait(&f->work, 1);
	}
	CHECK_OK(api, status);
}

static void complete(struct api *api, struct flight *f)
{
	char text[100];

	if (f->skipped)
		return;
	if (f->in_stream && f->work && random_below(&api->own, 2))
		CHECK_OK(api, tutti_work_wait_stream(f->work, api->stream));
	if (f->mode == MODE_ZERO && f->in_stream)
		gpu_sync(api->stream);
	if (f->mode == MODE_POLL)
		poll_work(api, f);
	if (f->mode == MODE_SHORT_WAITS)
		wait_shortly(api, f);
	else if (f->mode == MODE_DONE || f->mode == MODE_RELEASE)
		notice_wait(api, &f->notice, call_describe(f->spec, text));
	else if (f->mode == MODE_WAIT || f->mode == MODE_POLL)
		CHECK_OK(api, tutti_work_wait(&f->work, 0));
	CHECK(api, f->work == NULL, "%s: a finished work left its handle",
	      call_describe(f->spec, text));
	CHECK_OK(api, tutti_work_wait(&f->work, 0)); /* NULL is OK */
}

static void expected(struct api *api, const struct flight *f, char *out)
{
	const struct call_spec *s = f->spec;
	size_t bytes = s->count * data_bytes(s->data.dtype);

	switch (s->name) {
	case CALL_ALL_REDUCE:
		data_expect(&s->data, 0, s->count, out);
		break;
	case CALL_REDUCE:
		data_expect(&s->data, 0, f->recv_bytes ? s->count : 0, out);
		break;
	case CALL_REDUCE_SCATTER:
		data_expect(&s->data, s->count * (size_t)api->rank, s->count, out);
		break;
	case CALL_ALL_GATHER:
		for (int rank = 0; rank < api->size; rank++)
			data_fill(&s->data, rank, 0, s->count, out + bytes * (size_t)rank);
		break;
	case CALL_BROADCAST:
		data_fill(&s->data, s->root, 0, s->count, out);
		break;
	default:
		break;
	}
}

static void check_result(struct api *api, const struct flight *f)
{
	const struct call_spec *s = f->spec;
	size_t width = data_bytes(s->data.dtype), differs = 0;
	char *want = calloc(1, f->recv_bytes + 1), *got = calloc(1, f->recv_bytes + 1), text[100];
	uint64_t a = 0, b = 0;

	CHECK(api, want && got, "no memory");
	expected(api, f, want);
	buffer_read(&f->recv, (size_t)(f->recv_ptr - f->recv.data), got, f->recv_bytes);
	while (differs < f->recv_bytes && want[differs] == got[differs])
		differs++;
	if (differs < f->recv_bytes) {
		memcpy(&a, got + differs / width * width, width);
		memcpy(&b, want + differs / width * width, width);
		CHECK(api, false,
		      "%s: element %zu is %#llx, should be %#llx (%s, mode %d, memory %d, %zu past "
		      "alignment)",
		      call_describe(s, text), differs / width, (unsigned long long)a,
		      (unsigned long long)b, f->in_place ? "in place" : "not in place",
		      (int)f->mode, (int)f->recv.kind, (size_t)((uintptr_t)f->recv_ptr % 64));
	}
	free(want);
	free(got);
}

/* What was sent is still there: all of it, or in place all but the own block. */
static void check_source(struct api *api, const struct flight *f)
{
	const struct buffer *b = f->in_place ? &f->recv : &f->send;
	char *want = malloc(f->send_bytes + 1), *got = malloc(f->send_bytes + 1), text[100];
	size_t own = f->send_bytes, own_end = f->send_bytes; /* not to be compared */

	if (f->in_place) {
		own = f->send_bytes > f->recv_bytes ? f->own : 0;
		own_end = f->send_bytes > f->recv_bytes ? f->own + f->recv_bytes : f->send_bytes;
	}
	CHECK(api, want && got, "no memory");
	contribution(api, f, api->rank, want);
	buffer_read(b, (size_t)(f->send_ptr - b->data), got, f->send_bytes);
	for (size_t i = 0; i < f->send_bytes; i++)
		CHECK(api, (i >= own && i < own_end) || want[i] == got[i],
		      "%s, %s: byte %zu of the send buffer was changed",
		      call_describe(f->spec, text), f->in_place ? "in place" : "not in place", i);
	free(want);
	free(got);
}

static void check(struct api *api, const struct flight *f)
{
	char text[100];

	CHECK(api, buffer_guards_hold(&f->recv), "%s wrote beside recv",
	      call_describe(f->spec, text));
	CHECK(api, f->in_place || buffer_guards_hold(&f->send), "%s wrote beside send",
	      call_describe(f->spec, text));
	if (f->skipped)
		return;
	check_result(api, f);
	check_source(api, f);
}

static void choose(struct api *api, struct flight *f)
{
	const struct call_spec *spec = f->spec;

	f->in_place = spec->in_place == STYLE_ALL ||
		      (spec->in_place == STYLE_OWN && random_below(&api->own, 2));
	if (spec->blocking == STYLE_ALL)
		f->mode = (enum call_mode)random_below(&api->own, MODE_WAIT);
	else if (spec->blocking == STYLE_NONE)
		f->mode = (enum call_mode)(MODE_WAIT + random_below(&api->own, MODES - MODE_WAIT));
	else
		f->mode = (enum call_mode)random_below(&api->own, MODES);
}

static void flight_open(struct api *api, struct flight *f, const struct call_spec *spec, bool plain)
{
	*f = (struct flight){.spec = spec};
	pthread_mutex_init(&f->notice.lock, NULL);
	pthread_cond_init(&f->notice.changed, NULL);
	if (!plain)
		choose(api, f);
	CHECK_OK(api, own_op_open(&spec->data, api->rank, &f->op));
	f->op_is_open = spec->data.maker != DATA_BUILT_IN;
	make_buffers(api, f);
	/* Not the host's: without work and done it would only be enqueued. */
	if (f->mode == MODE_ZERO && f->recv.kind == BUFFER_PROOF)
		f->mode = MODE_NULL;
	f->in_stream = f->mode != MODE_NULL && f->recv.kind == BUFFER_CUDA;
	fill_buffers(api, f);
}

static void flight_close(struct api *api, struct flight *f)
{
	char text[100];
	bool has_done = f->mode == MODE_DONE || f->mode == MODE_RELEASE;

	/* The callback may still hold the lock that it signalled under. */
	pthread_mutex_lock(&f->notice.lock);
	int times = f->notice.times;
	pthread_mutex_unlock(&f->notice.lock);
	CHECK(api, times == (has_done && !f->skipped), "%s: its callback came %d times",
	      call_describe(f->spec, text), times);
	close_op(f);
	pthread_mutex_destroy(&f->notice.lock);
	pthread_cond_destroy(&f->notice.changed);
	buffer_destroy(&f->recv);
	if (!f->in_place)
		buffer_destroy(&f->send);
}

static void shuffle(struct api *api, int *order, int n)
{
	for (int i = 0; i < n; i++)
		order[i] = i;
	for (int i = n - 1; i > 0; i--) {
		int j = (int)random_below(&api->own, (uint64_t)i + 1), swap = order[i];
		order[i] = order[j];
		order[j] = swap;
	}
}

static void run(struct api *api, const struct call_spec *specs, int n, bool plain)
{
	struct flight *flights = calloc((size_t)n, sizeof *flights);
	int order[BATCH_MOST];

	CHECK(api, flights && n <= BATCH_MOST, "a batch of %d", n);
	for (int i = 0; i < n; i++)
		flight_open(api, &flights[i], &specs[i], plain);
	for (int i = 0; i < n; i++)
		start(api, &flights[i]);
	shuffle(api, order, n);
	for (int i = 0; i < n; i++)
		complete(api, &flights[order[i]]);
	for (int i = 0; i < n; i++)
		check(api, &flights[i]);
	for (int i = 0; i < n; i++)
		flight_close(api, &flights[i]);
	free(flights);
	api->arena_used = 0;
}

void batch_run(struct api *api, const struct call_spec *specs, int n)
{
	run(api, specs, n, false);
}

void batch_simple(struct api *api, const struct call_spec *spec)
{
	run(api, spec, 1, true);
}
