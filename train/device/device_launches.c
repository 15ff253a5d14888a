/* Launches of the kernels of training. cuda/kernels has what they do. */
#include "train/device/train_device_internal.h"

#include <string.h>

/* A block has this to do at the least: four elements a thread, twice. */
enum { BLOCK_ELEMENTS = 4096 };

static void device_launches_launch(struct train_device *d, enum cuda_kernel kernel, size_t count,
				   const void *args)
{
	size_t blocks = count / BLOCK_ELEMENTS + 1, most = (size_t)d->cuda->blocks_at_once[kernel];
	struct cuda_visit visit;

	if (count == 0 || d->failed.status != TUTTI_OK)
		return;
	tutti_status status = cuda_enter(d->cuda, &visit);
	if (status == TUTTI_OK) {
		status = cuda_launch(d->cuda, kernel, (unsigned)smaller(blocks, most), d->stream,
				     args);
		cuda_leave(&visit);
	}
	kept_error_note(&d->failed, status);
}

/* A key of random rounding holds for a part of the elements. */
static void round_at_random(struct train_update_args *args, const struct kernel_rounding *from)
{
	struct rounding_key key = rounding_key(from, args->count);

	args->rounding = (struct train_rounding){key.key, (uint32_t)from->first, 1};
	args->count = key.count;
}

static float *device_launches_at(float *values, size_t first)
{
	return values ? values + first : NULL;
}

static size_t device_launches_width(tutti_dtype dtype)
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
		args.m = device_launches_at(u->m, first);
		args.v = is_adamw ? u->v + first : NULL;
		args.grad = (const char *)u->grad + first * device_launches_width(u->grad_dtype);
		args.low = low->values
				   ? (char *)low->values + first * device_launches_width(low->dtype)
				   : NULL;
		args.count = u->count - first;
		if (args.low && low->at_random) {
			struct kernel_rounding from = *low->at_random;
			from.first += first;
			round_at_random(&args, &from);
		}
		device_launches_launch(d, CUDA_KERNEL_train_update, args.count, &args);
	}
}

void train_device_convert(struct train_device *d, void *out, tutti_dtype dtype, const void *x,
			  tutti_dtype x_dtype, size_t count)
{
	const struct train_map_args args = {.out = out,
					    .x = x,
					    .count = count,
					    .what = TRAIN_MAP_CONVERT,
					    .out_dtype = (int32_t)dtype,
					    .x_dtype = (int32_t)x_dtype};

	if (dtype == x_dtype)
		train_device_copy(d, out, x, count * device_launches_width(dtype));
	else
		device_launches_launch(d, CUDA_KERNEL_train_map, count, &args);
}

void train_device_add(struct train_device *d, void *sum, tutti_dtype sum_dtype, const void *x,
		      tutti_dtype x_dtype, size_t count)
{
	const struct train_map_args args = {.out = sum,
					    .x = x,
					    .count = count,
					    .what = TRAIN_MAP_ADD,
					    .out_dtype = (int32_t)sum_dtype,
					    .x_dtype = (int32_t)x_dtype};

	device_launches_launch(d, CUDA_KERNEL_train_map, count, &args);
}

void train_device_scale(struct train_device *d, void *out, tutti_dtype dtype, const void *x,
			tutti_dtype x_dtype, size_t count, float by)
{
	const struct train_map_args args = {.out = out,
					    .x = x,
					    .count = count,
					    .by = by,
					    .what = TRAIN_MAP_SCALE,
					    .out_dtype = (int32_t)dtype,
					    .x_dtype = (int32_t)x_dtype};

	device_launches_launch(d, CUDA_KERNEL_train_map, count, &args);
}

static uint64_t *words_of(const struct train_device *d, int set)
{
	return d->words + set * TRAIN_SQUARES_WORDS;
}

void train_device_squares_begin(struct train_device *d)
{
	for (int set = 0; set < DEVICE_SUMS; set++) {
		uint64_t *words = words_of(d, set);
		train_device_fill(d, words, 0, TRAIN_SQUARES_WORST * sizeof *words);
		train_device_fill(d, words + TRAIN_SQUARES_WORST, 0xff, sizeof *words);
	}
}

void train_device_squares_add(struct train_device *d, int set, const void *x, tutti_dtype dtype,
			      size_t count, int param)
{
	const struct train_squares_args args = {.x = x,
						.sums = words_of(d, set),
						.count = count,
						.param = (uint64_t)param,
						.dtype = (int32_t)dtype};

	device_launches_launch(d, CUDA_KERNEL_train_squares, count, &args);
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
