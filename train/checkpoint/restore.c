/* Copies values from files into pieces. */
#include "train/checkpoint/loading.h"

#include "train/base/base.h"
#include "train/precision/precision.h"

#include <assert.h>
#include <string.h>

enum { CHUNK = 8192 };

tutti_status restore_misfit(const char *function, const char *path, const char *what,
			    const char *name, const char *why)
{
	return fail_invalid("%s: '%s' does not fit this model: %s '%s' %s.", function,
			    path_shown(path), what, name, why);
}

static bool is_float(int dtype)
{
	return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 ||
	       dtype == TUTTI_BF16;
}

const char *restore_difference(const struct param *param, int ndim, const int64_t *shape, int dtype)
{
	if (ndim != param->ndim || memcmp(shape, param->shape, (size_t)ndim * sizeof *shape) != 0)
		return "has another shape there";
	return is_float(dtype) ? NULL : "is not of F32, F64, F16 or BF16 there";
}

/* Reads elements that follow each other in stored, as f32. */
static tutti_status read_run(const struct stored_tensor *stored, uint64_t first, size_t count,
			     float *values)
{
	double raw[CHUNK];

	assert(count <= CHUNK && is_float((int)stored->dtype));
	if (stored->dtype == TUTTI_F32)
		return stored->read(stored->file, stored->tensor, first, count, values);
	TRY(stored->read(stored->file, stored->tensor, first, count, raw));
	if (stored->dtype != TUTTI_F64) {
		kernel_convert(values, TUTTI_F32, raw, stored->dtype, count);
		return TUTTI_OK;
	}
	for (size_t i = 0; i < count; i++)
		values[i] = (float)raw[i];
	return TUTTI_OK;
}

/* Reads elements [first, first + count) of the piece, as f32, at most CHUNK of them. */
static tutti_status read_floats(const tutti_trainer *trainer, const struct piece *piece,
				const struct stored_tensor *stored, size_t first, size_t count,
				float *values)
{
	const struct param *param = &trainer->model.params[piece->param];

	for (size_t done = 0, run; done < count; done += run) {
		size_t own = param->part.first + piece->first + first + done;
		size_t place = order_map(param->part.order, stored->order, param->ndim,
					 param->shape, own, &run);
		run = smaller(run, count - done);
		TRY(read_run(stored, place, run, values + done));
	}
	return TUTTI_OK;
}

tutti_status restore_piece(tutti_trainer *trainer, const struct piece *piece,
			   const struct stored_tensor *stored)
{
	float values[CHUNK];

	for (size_t done = 0, n; done < piece->count; done += n) {
		n = smaller(CHUNK, piece->count - done);
		TRY(read_floats(trainer, piece, stored, done, n, values));
		piece_write(trainer, piece, done, n, values);
	}
	return TUTTI_OK;
}

/* Numbers of this type do not change on the way through f32. */
tutti_status restore_low(tutti_trainer *trainer, const struct piece *piece,
			 const struct stored_tensor *stored)
{
	tutti_dtype dtype = trainer->config.param_dtype;
	float values[CHUNK];

	for (size_t done = 0, n; done < piece->count; done += n) {
		n = smaller(CHUNK, piece->count - done);
		TRY(read_floats(trainer, piece, stored, done, n, values));
		values_write(piece->home, element_at(piece->low, dtype, done), dtype, values, n);
	}
	return TUTTI_OK;
}

tutti_status restore_state(tutti_trainer *trainer, struct piece *piece, int which,
			   const struct stored_tensor *stored)
{
	if (stored->tensor)
		TRY(state_make(trainer, piece, which));
	float read[CHUNK], *values = which == STATE_M ? piece->m : piece->v;
	if (!values)
		return TUTTI_OK;
	for (size_t done = 0, n; done < piece->count; done += n) {
		n = smaller(CHUNK, piece->count - done);
		if (stored->tensor)
			TRY(read_floats(trainer, piece, stored, done, n, read));
		else
			memset(read, 0, n * sizeof *read);
		piece_set(piece, values + done, n, read);
		state_let_go(trainer, piece, done, n);
	}
	return TUTTI_OK;
}
