/* Memory of a GPU, copies and launches of kernels in the order of a stream, and updates on the host
 * tile by tile. */
#include "train/device/train_device.h"

#include "cuda/device.h"
#include "cuda/kernels/train_args.h"
#include "train/base/base.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Pinned memory of tiles that go down and up; and when each was last copied. */
enum { TILE_ELEMENTS = 1 << 17, TILES = 2 };

struct tiles {
	char *grad[TILES], *result[TILES]; /* NULL: not made */
	CUevent is_down[TILES], is_up[TILES];
};

struct train_device {
	struct cuda_device *cuda;
	CUstream stream;
	void *staging;   /* of the host, pinned: what is read or written passes through it */
	uint64_t *words; /* of the device: sums of squares */
	CUevent here;    /* for other streams to wait for */
	struct tiles tiles;
	struct kept_error failed;
};

static inline CUdeviceptr train_device_address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

static void train_device_tiles_free(struct tiles *tiles);

static tutti_status train_device_allocate(struct train_device *d)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdeviceptr words;

	CUDA_TRY(event_create, &d->here, CU_EVENT_DISABLE_TIMING);
	CUDA_TRY(mem_host_alloc, &d->staging, DEVICE_VIEW_BYTES, CU_MEMHOSTALLOC_PORTABLE);
	CUDA_TRY(mem_alloc, &words, DEVICE_SUMS * TRAIN_SQUARES_WORDS * sizeof *d->words);
	d->words = (uint64_t *)(uintptr_t)words;
	return TUTTI_OK;
}

/* Each thread has a default stream of its own, and hooks may be called by several. */
static tutti_status train_device_check_stream(void *stream)
{
	if (!cuda_driver())
		return fail(TUTTI_ERR_UNSUPPORTED, "tutti_train_config: on_device needs CUDA: %s.",
			    cuda_driver_missing());
	if (stream == CU_STREAM_PER_THREAD)
		return fail_invalid("tutti_train_config: stream is the default stream of a "
				    "thread: pass one of your own.");
	return TUTTI_OK;
}

tutti_status train_device_open(struct train_device **device, void *stream)
{
	struct cuda_device *cuda;
	struct cuda_visit visit;

	TRY(train_device_check_stream(stream));
	TRY(cuda_device_of_stream(&cuda, stream, NULL));
	struct train_device *d = calloc(1, sizeof *d);
	if (!d)
		return fail_no_memory("a trainer's device");
	*d = (struct train_device){.cuda = cuda, .stream = stream};
	tutti_status status = cuda_enter(cuda, &visit);
	if (status == TUTTI_OK) {
		status = train_device_allocate(d);
		cuda_leave(&visit);
	}
	if (status == TUTTI_OK)
		*device = d;
	else
		train_device_close(d);
	return status;
}

void train_device_close(struct train_device *d)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;

	if (d && cuda_enter(d->cuda, &visit) == TUTTI_OK) {
		if (d->words) {
			cuda->stream_synchronize(d->stream);
			cuda->mem_free(train_device_address(d->words));
		}
		if (d->staging)
			cuda->mem_free_host(d->staging);
		if (d->here)
			cuda->event_destroy(d->here);
		train_device_tiles_free(&d->tiles);
		cuda_leave(&visit);
	}
	free(d);
}

tutti_status train_device_failure(const struct train_device *d)
{
	return kept_error_return(&d->failed);
}

int train_device_ordinal(const struct train_device *d)
{
	return d->cuda->ordinal;
}

int train_device_of(const void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdeviceptr address = train_device_address(ptr);
	unsigned type = 0;
	int ordinal;

	if (!cuda ||
	    cuda->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
		    CUDA_SUCCESS ||
	    type != CU_MEMORYTYPE_DEVICE ||
	    cuda->pointer_get_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) !=
		    CUDA_SUCCESS)
		return -1;
	return ordinal;
}

tutti_status train_device_alloc(struct train_device *d, void **ptr, size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;
	CUdeviceptr pointer = 0;

	TRY(cuda_enter(d->cuda, &visit));
	CUresult error = cuda->mem_alloc(&pointer, bytes);
	cuda_leave(&visit);
	*ptr = (void *)(uintptr_t)pointer;
	if (error == CUDA_ERROR_OUT_OF_MEMORY)
		return fail(TUTTI_ERR_MEMORY, "CUDA device %d has no %zu bytes left.",
			    d->cuda->ordinal, bytes);
	return cuda_status(error, "mem_alloc");
}

void train_device_free(struct train_device *d, void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;

	if (!ptr || cuda_enter(d->cuda, &visit) != TUTTI_OK)
		return; /* the context is gone, and the memory with it */
	cuda->stream_synchronize(d->stream);
	cuda->mem_free(train_device_address(ptr));
	cuda_leave(&visit);
}

static tutti_status train_device_copy_on_device(struct train_device *d, void *to, const void *from,
						size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(memcpy_async, train_device_address(to), train_device_address(from), bytes,
		 d->stream);
	return TUTTI_OK;
}

static tutti_status train_device_wait_on_device(struct train_device *d)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(stream_synchronize, d->stream);
	return TUTTI_OK;
}

static bool train_device_enter(struct train_device *d, struct cuda_visit *visit)
{
	if (d->failed.status == TUTTI_OK)
		kept_error_note(&d->failed, cuda_enter(d->cuda, visit));
	return d->failed.status == TUTTI_OK;
}

/* Between the two calls are made on the device. False: it has failed. */
static void train_device_leave(struct train_device *d, struct cuda_visit *visit,
			       tutti_status status)
{
	kept_error_note(&d->failed, status);
	cuda_leave(visit);
}

/* One call of the driver on the device. */
#define ON_DEVICE(d, call, ...)                                                                    \
	do {                                                                                       \
		struct cuda_visit visit_;                                                          \
		if (train_device_enter(d, &visit_))                                                \
			train_device_leave(d, &visit_,                                             \
					   cuda_status(cuda_driver()->call(__VA_ARGS__), #call));  \
	} while (0)

void train_device_wait(struct train_device *d)
{
	ON_DEVICE(d, stream_synchronize, d->stream);
}

void train_device_follow(struct train_device *d, struct train_device *other)
{
	ON_DEVICE(other, event_record, other->here, other->stream);
	ON_DEVICE(d, stream_wait_event, d->stream, other->here, 0);
}

void train_device_fill(struct train_device *d, void *to, unsigned char value, size_t bytes)
{
	if (bytes)
		ON_DEVICE(d, memset_d8_async, train_device_address(to), value, bytes, d->stream);
}

void train_device_copy(struct train_device *d, void *to, const void *from, size_t bytes)
{
	struct cuda_visit visit;

	if (bytes && train_device_enter(d, &visit))
		train_device_leave(d, &visit, train_device_copy_on_device(d, to, from, bytes));
}

static tutti_status train_device_read_staged(struct train_device *d, const void *from, size_t bytes)
{
	TRY(train_device_copy_on_device(d, d->staging, from, bytes));
	return train_device_wait_on_device(d);
}

const void *train_device_view(struct train_device *d, const void *from, size_t bytes)
{
	struct cuda_visit visit;

	assert(bytes <= DEVICE_VIEW_BYTES);
	if (bytes && train_device_enter(d, &visit))
		train_device_leave(d, &visit, train_device_read_staged(d, from, bytes));
	if (d->failed.status != TUTTI_OK)
		memset(d->staging, 0, bytes);
	return d->staging;
}

static tutti_status train_device_write_part(struct train_device *d, char *to, const char *host,
					    size_t bytes)
{
	memcpy(d->staging, host, bytes);
	TRY(train_device_copy_on_device(d, to, d->staging, bytes));
	return train_device_wait_on_device(d);
}

void train_device_read(struct train_device *d, void *host, const void *from, size_t bytes)
{
	for (size_t at = 0, n; at < bytes; at += n) {
		n = smaller(DEVICE_VIEW_BYTES, bytes - at);
		memcpy((char *)host + at, train_device_view(d, (const char *)from + at, n), n);
	}
}

void train_device_write(struct train_device *d, void *to, const void *host, size_t bytes)
{
	struct cuda_visit visit;

	for (size_t at = 0, n; at < bytes; at += n) {
		n = smaller(DEVICE_VIEW_BYTES, bytes - at);
		if (train_device_enter(d, &visit))
			train_device_leave(d, &visit,
					   train_device_write_part(d, (char *)to + at,
								   (const char *)host + at, n));
	}
}

/* ---- tiles ---- */

/* Updates on the host. While it updates a tile the next gradient comes down and the last result
 * goes up, each through one of two buffers. All copies are in the order of the stream. */

/* Where tiles of an array are. */
struct passage {
	struct train_device *device;
	const struct device_tiles *of;
	size_t tiles;
};

static size_t train_device_elements_of(const struct passage *p, size_t tile)
{
	return smaller(TILE_ELEMENTS, p->of->count - tile * TILE_ELEMENTS);
}

static tutti_status train_device_tiles_make_buffer(char **buffer, CUevent *event)
{
	const struct cuda_driver *cuda = cuda_driver();
	void *memory;

	CUDA_TRY(event_create, event, CU_EVENT_DISABLE_TIMING);
	CUDA_TRY(mem_host_alloc, &memory, TILE_ELEMENTS * sizeof(float), CU_MEMHOSTALLOC_PORTABLE);
	*buffer = memory;
	return TUTTI_OK;
}

static tutti_status train_device_tiles_make(struct tiles *tiles)
{
	for (int i = 0; i < TILES; i++) {
		if (!tiles->grad[i])
			TRY(train_device_tiles_make_buffer(&tiles->grad[i], &tiles->is_down[i]));
		if (!tiles->result[i])
			TRY(train_device_tiles_make_buffer(&tiles->result[i], &tiles->is_up[i]));
	}
	return TUTTI_OK;
}

/* On the device. */
static void train_device_tiles_free(struct tiles *tiles)
{
	const struct cuda_driver *cuda = cuda_driver();

	for (int i = 0; i < TILES; i++) {
		if (tiles->is_down[i])
			cuda->event_destroy(tiles->is_down[i]);
		if (tiles->is_up[i])
			cuda->event_destroy(tiles->is_up[i]);
		if (tiles->grad[i])
			cuda->mem_free_host(tiles->grad[i]);
		if (tiles->result[i])
			cuda->mem_free_host(tiles->result[i]);
	}
}

static tutti_status train_device_tiles_fetch(const struct passage *p, size_t tile)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct train_device *d = p->device;
	size_t width = p->of->grad_width;
	const char *from = (const char *)p->of->grad + tile * TILE_ELEMENTS * width;

	if (tile >= p->tiles)
		return TUTTI_OK;
	CUDA_TRY(memcpy_async, train_device_address(d->tiles.grad[tile % TILES]),
		 train_device_address(from), train_device_elements_of(p, tile) * width, d->stream);
	CUDA_TRY(event_record, d->tiles.is_down[tile % TILES], d->stream);
	return TUTTI_OK;
}

static tutti_status train_device_tiles_send(const struct passage *p, size_t tile)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct train_device *d = p->device;
	size_t width = p->of->result_width;
	const char *to = (const char *)p->of->result + tile * TILE_ELEMENTS * width;

	CUDA_TRY(memcpy_async, train_device_address(to),
		 train_device_address(d->tiles.result[tile % TILES]),
		 train_device_elements_of(p, tile) * width, d->stream);
	CUDA_TRY(event_record, d->tiles.is_up[tile % TILES], d->stream);
	return TUTTI_OK;
}

static tutti_status train_device_tiles_pass(const struct passage *p)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct tiles *tiles = &p->device->tiles;

	TRY(train_device_tiles_make(tiles));
	TRY(train_device_tiles_fetch(p, 0));
	for (size_t tile = 0; tile < p->tiles; tile++) {
		TRY(train_device_tiles_fetch(p, tile + 1));
		CUDA_TRY(event_synchronize, tiles->is_down[tile % TILES]);
		/* An event that was never recorded is over. */
		CUDA_TRY(event_synchronize, tiles->is_up[tile % TILES]);
		p->of->update(p->of->arg, tile * TILE_ELEMENTS, train_device_elements_of(p, tile),
			      tiles->grad[tile % TILES], tiles->result[tile % TILES]);
		TRY(train_device_tiles_send(p, tile));
	}
	return TUTTI_OK;
}

void train_device_update_tiles(struct train_device *d, const struct device_tiles *of)
{
	const struct passage p = {d, of, (of->count + TILE_ELEMENTS - 1) / TILE_ELEMENTS};
	struct cuda_visit visit;

	if (train_device_enter(d, &visit))
		train_device_leave(d, &visit, train_device_tiles_pass(&p));
}

/* ---- launches ---- */

/* The kernels of training. cuda/kernels has what they do. */

/* A block has this to do at the least: four elements a thread, twice. */
enum { BLOCK_ELEMENTS = 4096 };

static tutti_status train_device_launch_on_device(struct train_device *d, enum cuda_kernel kernel,
						  size_t count, const void *args)
{
	size_t blocks = count / BLOCK_ELEMENTS + 1, most = (size_t)d->cuda->blocks_at_once[kernel];

	return cuda_launch(d->cuda, kernel, (unsigned)smaller(blocks, most), d->stream, args);
}

static void train_device_launches_launch(struct train_device *d, enum cuda_kernel kernel,
					 size_t count, const void *args)
{
	struct cuda_visit visit;

	if (count && train_device_enter(d, &visit))
		train_device_leave(d, &visit,
				   train_device_launch_on_device(d, kernel, count, args));
}

/* A key of random rounding holds for a part of the elements. */
static void train_device_round_at_random(struct train_update_args *args,
					 const struct kernel_rounding *from)
{
	struct rounding_key key = rounding_key(from, args->count);

	args->rounding = (struct train_rounding){key.key, (uint32_t)from->first, 1};
	args->count = key.count;
}

static float *train_device_launches_at(float *values, size_t first)
{
	return values ? values + first : NULL;
}

static size_t train_device_launches_width(tutti_dtype dtype)
{
	return dtype == TUTTI_F32 ? sizeof(float) : sizeof(uint16_t);
}

void train_device_update(struct train_device *d, const struct kernel_update *u,
			 const tutti_optimizer *o, double number, const struct device_low *low)
{
	bool is_adamw = o->kind == TUTTI_ADAMW;
	struct adamw_numbers n = is_adamw ? adamw_numbers(o, number) : (struct adamw_numbers){0};
	struct train_update_args args = {.scale = u->scale,
					 .beta1 = n.beta1,
					 .beta2 = n.beta2,
					 .eps = n.eps,
					 .keep = n.keep,
					 .rate = is_adamw ? n.rate : o->lr,
					 .bias2 = n.bias2,
					 .decay = o->weight_decay,
					 .momentum = o->momentum,
					 .kind = is_adamw ? TRAIN_UPDATE_ADAMW : TRAIN_UPDATE_SGD,
					 .grad_dtype = (int32_t)u->grad_dtype,
					 .low_dtype = (int32_t)low->dtype};

	for (size_t first = 0; first < u->count; first += args.count) {
		args.value = u->value + first;
		args.m = train_device_launches_at(u->m, first);
		args.v = is_adamw ? u->v + first : NULL;
		args.grad =
			(const char *)u->grad + first * train_device_launches_width(u->grad_dtype);
		args.low = low->values ? (char *)low->values +
						 first * train_device_launches_width(low->dtype)
				       : NULL;
		args.count = u->count - first;
		if (args.low && low->at_random) {
			struct kernel_rounding from = *low->at_random;
			from.first += first;
			train_device_round_at_random(&args, &from);
		}
		train_device_launches_launch(d, CUDA_KERNEL_train_update, args.count, &args);
	}
}

static void train_device_launches_map(struct train_device *d, int32_t what, void *out,
				      tutti_dtype dtype, const void *x, tutti_dtype x_dtype,
				      size_t count, float by)
{
	const struct train_map_args args = {.out = out,
					    .x = x,
					    .count = count,
					    .by = by,
					    .what = what,
					    .out_dtype = (int32_t)dtype,
					    .x_dtype = (int32_t)x_dtype};

	train_device_launches_launch(d, CUDA_KERNEL_train_map, count, &args);
}

void train_device_convert(struct train_device *d, void *out, tutti_dtype dtype, const void *x,
			  tutti_dtype x_dtype, size_t count)
{
	if (dtype == x_dtype)
		train_device_copy(d, out, x, count * train_device_launches_width(dtype));
	else
		train_device_launches_map(d, TRAIN_MAP_CONVERT, out, dtype, x, x_dtype, count, 0);
}

void train_device_add(struct train_device *d, void *sum, tutti_dtype sum_dtype, const void *x,
		      tutti_dtype x_dtype, size_t count)
{
	train_device_launches_map(d, TRAIN_MAP_ADD, sum, sum_dtype, x, x_dtype, count, 0);
}

void train_device_scale(struct train_device *d, void *out, tutti_dtype dtype, const void *x,
			tutti_dtype x_dtype, size_t count, float by)
{
	train_device_launches_map(d, TRAIN_MAP_SCALE, out, dtype, x, x_dtype, count, by);
}

static uint64_t *train_device_words_of(const struct train_device *d, int set)
{
	return d->words + set * TRAIN_SQUARES_WORDS;
}

void train_device_squares_begin(struct train_device *d)
{
	for (int set = 0; set < DEVICE_SUMS; set++) {
		uint64_t *words = train_device_words_of(d, set);
		train_device_fill(d, words, 0, TRAIN_SQUARES_WORST * sizeof *words);
		train_device_fill(d, words + TRAIN_SQUARES_WORST, 0xff, sizeof *words);
	}
}

void train_device_squares_add(struct train_device *d, int set, const void *x, tutti_dtype dtype,
			      size_t count, int param)
{
	const struct train_squares_args args = {.x = x,
						.sums = train_device_words_of(d, set),
						.count = count,
						.param = (uint64_t)param,
						.dtype = (int32_t)dtype};

	train_device_launches_launch(d, CUDA_KERNEL_train_squares, count, &args);
}

void train_device_squares_end(struct train_device *d, struct exact_sum sums[DEVICE_SUMS],
			      int64_t bad[DEVICE_SUMS])
{
	uint64_t words[DEVICE_SUMS][TRAIN_SQUARES_WORDS];

	train_device_read(d, words, d->words, sizeof words);
	for (int set = 0; set < DEVICE_SUMS; set++) {
		exact_sum_add_halves(&sums[set], words[set]);
		bad[set] = words[set][2 * TRAIN_SQUARES_EXPONENTS - 2]
				   ? (int64_t)words[set][TRAIN_SQUARES_WORST]
				   : -1;
	}
}
