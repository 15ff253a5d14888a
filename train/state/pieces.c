/* The pieces of a trainer, their optimizer state, and arrays of values, in host memory or a GPU's.
 * Pieces are made once, when buckets are placed. */
#include "train/state/pieces.h"

#include "train/base/base.h"
#include "train/state/trainer_state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- values ---- */

enum { VALUES_ALIGNMENT = 64, VALUES_CHUNK = 1 << 12 };

tutti_status values_alloc(const struct home *home, void **values, size_t bytes, const char *what)
{
	if (home->device)
		return train_device_alloc(home->device, values, bytes);
	if (posix_memalign(values, VALUES_ALIGNMENT, bytes) != 0)
		return fail_no_memory("%s", what);
	return TUTTI_OK;
}

void values_free(const struct home *home, void *values)
{
	if (home->device)
		train_device_free(home->device, values);
	else
		free(values);
}

void values_zero(const struct home *home, void *values, size_t bytes)
{
	if (home->device)
		train_device_fill(home->device, values, 0, bytes);
	else
		memset(values, 0, bytes);
}

void values_poison(const struct home *home, void *values, size_t bytes)
{
	enum { NAN_BYTE = 0xff }; /* NaN in every floating type */

	if (home->device)
		train_device_fill(home->device, values, NAN_BYTE, bytes);
	else
		memset(values, NAN_BYTE, bytes);
}

void values_copy(const struct home *home, void *to, const void *from, size_t bytes)
{
	if (home->device)
		train_device_copy(home->device, to, from, bytes);
	else
		memcpy(to, from, bytes);
}

void values_convert(const struct home *home, void *out, tutti_dtype dtype, const void *x,
		    tutti_dtype x_dtype, size_t count)
{
	if (home->device)
		train_device_convert(home->device, out, dtype, x, x_dtype, count);
	else
		kernel_convert(out, dtype, x, x_dtype, count);
}

void values_add(const struct home *home, void *sum, tutti_dtype sum_dtype, const void *x,
		tutti_dtype x_dtype, size_t count)
{
	if (home->device)
		train_device_add(home->device, sum, sum_dtype, x, x_dtype, count);
	else
		kernel_add(sum, sum_dtype, x, x_dtype, count);
}

void values_scale(const struct home *home, void *out, tutti_dtype dtype, const void *x,
		  tutti_dtype x_dtype, size_t count, float by)
{
	if (home->device)
		train_device_scale(home->device, out, dtype, x, x_dtype, count, by);
	else
		kernel_scale(out, dtype, x, x_dtype, count, by);
}

const void *values_view(const struct home *home, const void *values, size_t bytes)
{
	return home->device ? train_device_view(home->device, values, bytes) : values;
}

static void pieces_read_16(const struct home *home, float *host, const uint16_t *values,
			   tutti_dtype dtype, size_t count)
{
	for (size_t first = 0, n; first < count; first += n) {
		n = smaller(VALUES_VIEW_BYTES / sizeof *values, count - first);
		const void *raw =
			train_device_view(home->device, values + first, n * sizeof *values);
		kernel_convert(host + first, TUTTI_F32, raw, dtype, n);
	}
}

static void pieces_values_read(const struct home *home, float *host, const void *values,
			       tutti_dtype dtype, size_t count)
{
	if (!home->device)
		kernel_convert(host, TUTTI_F32, values, dtype, count);
	else if (dtype == TUTTI_F32)
		train_device_read(home->device, host, values, count * sizeof *host);
	else
		pieces_read_16(home, host, values, dtype, count);
}

static void pieces_write_16(const struct home *home, uint16_t *values, tutti_dtype dtype,
			    const float *host, size_t count)
{
	uint16_t raw[VALUES_CHUNK];

	for (size_t first = 0, n; first < count; first += n) {
		n = smaller(VALUES_CHUNK, count - first);
		kernel_convert(raw, dtype, host + first, TUTTI_F32, n);
		train_device_write(home->device, values + first, raw, n * sizeof *raw);
	}
}

void values_write(const struct home *home, void *values, tutti_dtype dtype, const float *host,
		  size_t count)
{
	if (!home->device)
		kernel_convert(values, dtype, host, TUTTI_F32, count);
	else if (dtype == TUTTI_F32)
		train_device_write(home->device, values, host, count * sizeof *host);
	else
		pieces_write_16(home, values, dtype, host, count);
}

uint64_t values_hash(const struct home *home, const void *values, size_t bytes)
{
	uint64_t hash = 0;

	if (!home->device)
		return random_hash(values, bytes);
	for (size_t at = 0, n; at < bytes; at += n) {
		n = smaller(VALUES_VIEW_BYTES, bytes - at);
		const char *part = (const char *)values + at;
		hash = random_mix(hash ^ random_hash(train_device_view(home->device, part, n), n));
	}
	return hash;
}

/* ---- optimizer state ---- */

/* In memory, on the device or in mapped files. A file is unlinked at once, so that it goes with the
 * process. Its space is allocated at once, so that a full disk is an error here and not a signal
 * later. */

/* Makes a file without a name. path is for messages. */
static tutti_status state_open_file(const tutti_trainer *trainer, char path[DISK_PATH_BYTES],
				    size_t bytes, int *file)
{
	TRY(disk_path(path, "%s/tutti_state_XXXXXX", trainer->config.offload_dir));
	int fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return disk_fail("Making the file of offload_dir", path);
	unlink(path);
	tutti_status status = disk_take_blocks(fd, path, bytes);
	if (status == TUTTI_OK)
		*file = fd;
	else
		close(fd);
	return status;
}

static tutti_status pieces_map_file(tutti_trainer *trainer, size_t count, struct state_file *state)
{
	size_t bytes = count * sizeof(float);
	char path[DISK_PATH_BYTES];
	int file = -1;

	TRY(state_open_file(trainer, path, bytes, &file));
	void *values = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	tutti_status status =
		values == MAP_FAILED ? disk_fail("Mapping optimizer state in", path) : TUTTI_OK;
	close(file);
	TRY(status);
	*state = (struct state_file){values, bytes};
	return TUTTI_OK;
}

/* One array for all pieces of a home. */
static tutti_status pieces_place_in_memory(const tutti_trainer *trainer, const struct home *home,
					   struct state_file *state)
{
	size_t bytes = home->state_count * sizeof(float);
	void *values = NULL;

	if (trainer_offloads(trainer)) {
		values = calloc(home->state_count, sizeof(float));
		if (!values)
			return fail_no_memory("optimizer state");
	} else {
		TRY(train_device_alloc(home->device, &values, bytes));
		train_device_fill(home->device, values, 0, bytes);
	}
	*state = (struct state_file){values, bytes};
	return TUTTI_OK;
}

static tutti_status pieces_make_array(tutti_trainer *trainer, struct home *home, int which)
{
	struct state_file *state = &home->files[which];

	if (state->values)
		return TUTTI_OK;
	return trainer->config.offload_dir ? pieces_map_file(trainer, home->state_count, state)
					   : pieces_place_in_memory(trainer, home, state);
}

static tutti_status state_make_own(const struct piece *piece, float **place)
{
	size_t bytes = piece->count * sizeof **place;
	void *values;

	if (!piece->home->device || piece->is_offloaded) {
		*place = calloc(1, bytes);
		return *place ? TUTTI_OK : fail_no_memory("optimizer state");
	}
	TRY(values_alloc(piece->home, &values, bytes, "optimizer state"));
	values_zero(piece->home, values, bytes);
	*place = values;
	return TUTTI_OK;
}

/* Otherwise each piece has memory. */
static bool pieces_has_arrays(const tutti_trainer *trainer)
{
	return trainer->config.on_device || trainer->config.offload_dir;
}

tutti_status state_make(tutti_trainer *trainer, struct piece *piece, int which)
{
	float **places[STATES] = {&piece->value, &piece->m, &piece->v}, **place = places[which];

	if (*place)
		return TUTTI_OK;
	bool is_array = !piece->is_shadow && pieces_has_arrays(trainer);
	if (is_array) {
		struct home *home = state_home(trainer, piece);
		TRY(pieces_make_array(trainer, home, which));
		*place = home->files[which].values + piece->state_first;
	} else {
		TRY(state_make_own(piece, place));
	}
	if (!is_array || (trainer->config.on_device && !trainer_offloads(trainer)))
		trainer->stats.optimizer_bytes += piece->count * sizeof **place;
	return TUTTI_OK;
}

void state_clear(const struct piece *piece, int which)
{
	float *values = which == STATE_M ? piece->m : piece->v;
	size_t bytes = piece->count * sizeof *values;

	if (piece->is_offloaded)
		memset(values, 0, bytes);
	else
		values_zero(piece->home, values, bytes);
}

/* For a missing page the kernel maps the whole folio that it holds in memory: pages that were let
 * go come back with their neighbours. So whole folios are let go. */
enum { FOLIO_BYTES = 2 << 20 };

void state_let_go(const tutti_trainer *trainer, const struct piece *piece, size_t first,
		  size_t count)
{
	if (!piece->sum || piece->is_shadow || !trainer->config.offload_dir) /* not in the files */
		return;
	size_t begin = (piece->state_first + first) * sizeof(float) / FOLIO_BYTES;
	size_t end = (piece->state_first + first + count) * sizeof(float) / FOLIO_BYTES + 1;
	for (int which = 0; which < STATES; which++) {
		const struct state_file *file = &trainer->homes[0].files[which];
		size_t from = begin * FOLIO_BYTES, to = end * FOLIO_BYTES;
		if (to > file->bytes)
			to = file->bytes;
		if (file->values)
			madvise((char *)file->values + from, to - from, MADV_DONTNEED);
	}
}

static void pieces_free_array(const tutti_trainer *trainer, const struct home *home, int which)
{
	const struct state_file *state = &home->files[which];

	if (!state->values)
		return;
	if (trainer->config.offload_dir)
		munmap(state->values, state->bytes);
	else if (trainer_offloads(trainer))
		free(state->values);
	else
		train_device_free(home->device, state->values);
}

static void state_free(tutti_trainer *trainer)
{
	for (int i = 0; i < trainer->piece_count && !pieces_has_arrays(trainer); i++) {
		struct piece *piece = &trainer->pieces[i];
		free(piece->m);
		free(piece->v);
		if (piece->low)
			free(piece->value);
	}
	for (int h = 0; h < trainer->home_count; h++)
		for (int which = 0; which < STATES; which++)
			pieces_free_array(trainer, &trainer->homes[h], which);
}

/* ---- pieces ---- */

static size_t pieces_replica_cut(size_t count, int sharer, int sharers)
{
	return count * (size_t)sharer / (size_t)sharers;
}

/* Ranks that hold the same elements save one part of them each. */
static void pieces_share_saving(const tutti_trainer *trainer, const struct bucket *bucket,
				struct piece *piece)
{
	bool is_split = bucket->span->is_split;
	int sharers = is_split ? trainer->replica_count : trainer->size;
	int sharer = is_split ? trainer->rank / trainer->layout.shard_size : trainer->rank;

	piece->save_first = pieces_replica_cut(piece->count, sharer, sharers);
	piece->save_count =
		pieces_replica_cut(piece->count, sharer + 1, sharers) - piece->save_first;
}

static void pieces_add_piece(tutti_trainer *trainer, const struct bucket *bucket, int p)
{
	const struct param_place *place = &trainer->layout.places[p];
	const struct param *param = &trainer->model.params[p];
	struct element_range own = param_part(&trainer->layout, &trainer->model, p, bucket->part);
	size_t width = dtype_bytes(trainer->config.param_dtype), count = own.last - own.first;

	if (count == 0)
		return;
	struct piece *piece = &trainer->pieces[trainer->piece_count++];
	*piece = (struct piece){.param = p,
				.home = bucket->home,
				.first = own.first,
				.count = count,
				.sum_dtype = bucket->sum_dtype};
	size_t element = place->offset + own.first;
	char *values = param->is_extern ? (char *)param->data + own.first * width
		       : bucket->shard  ? bucket->shard + (element - bucket->part.first) * width
					: bucket->data + element * width;
	piece->is_offloaded = bucket->span->is_trained && trainer_offloads(trainer);
	if (width == sizeof(float) && !piece->is_offloaded)
		piece->value = (float *)(void *)values;
	else
		piece->low = values;
	size_t sum_width = dtype_bytes(bucket->sum_dtype);
	if (bucket->span->is_trained && bucket->sum)
		piece->sum = bucket->sum + (element - bucket->part.first) * sum_width;
	else if (bucket->span->is_trained)
		piece->sum = param->is_extern ? (char *)param->grad + own.first * sum_width
					      : bucket->grad + element * sum_width;
	pieces_share_saving(trainer, bucket, piece);
}

enum { STATE_UNIT = 16 };

/* On a device elements move by four. */
static void pieces_place_state(const tutti_trainer *trainer, struct piece *piece)
{
	size_t unit = trainer->config.on_device ? STATE_UNIT : 1;
	struct home *home = state_home(trainer, piece);

	piece->state_first = home->state_count;
	home->state_count += piece->sum ? (piece->count + unit - 1) / unit * unit : 0;
}

tutti_status pieces_make(tutti_trainer *trainer)
{
	trainer->pieces = calloc((size_t)trainer->model.param_count + 1, sizeof *trainer->pieces);
	if (!trainer->pieces)
		return fail_no_memory("a trainer's tables");
	for (int b = 0; b < trainer->layout.span_count; b++) {
		struct bucket *bucket = &trainer->buckets[b];
		bucket->first_piece = trainer->piece_count;
		for (int i = 0; i < bucket->span->param_count; i++)
			pieces_add_piece(trainer, bucket, bucket->span->params[i]);
		bucket->piece_count = trainer->piece_count - bucket->first_piece;
	}
	for (int i = 0; i < trainer->piece_count; i++)
		pieces_place_state(trainer, &trainer->pieces[i]);
	for (int i = 0; i < trainer->piece_count; i++)
		if (trainer->pieces[i].low && trainer->pieces[i].sum)
			TRY(state_make(trainer, &trainer->pieces[i], STATE_MASTER));
	return TUTTI_OK;
}

void pieces_free(tutti_trainer *trainer)
{
	state_free(trainer);
	free(trainer->pieces);
	trainer->pieces = NULL;
	trainer->piece_count = 0;
}

void piece_read(const tutti_trainer *trainer, const struct piece *piece, size_t first, size_t count,
		float *values)
{
	tutti_dtype dtype = trainer->config.param_dtype;

	if (piece->is_offloaded)
		memcpy(values, piece->value + first, count * sizeof *values);
	else if (piece->value)
		pieces_values_read(piece->home, values, piece->value + first, TUTTI_F32, count);
	else
		pieces_values_read(piece->home, values, element_at(piece->low, dtype, first), dtype,
				   count);
	state_let_go(trainer, piece, first, count);
}

void piece_set(const struct piece *piece, float *values, size_t count, const float *to)
{
	if (piece->is_offloaded)
		memcpy(values, to, count * sizeof *values);
	else
		values_write(piece->home, values, TUTTI_F32, to, count);
}

void piece_write(tutti_trainer *trainer, const struct piece *piece, size_t first, size_t count,
		 const float *values)
{
	tutti_dtype dtype = trainer->config.param_dtype;

	if (piece->value)
		piece_set(piece, piece->value + first, count, values);
	if (piece->low)
		values_write(piece->home, element_at(piece->low, dtype, first), dtype, values,
			     count);
	state_let_go(trainer, piece, first, count);
}

enum { STRIDE = 1 << 14 };

/* On a device at once. */
static size_t pieces_stride_of(const tutti_trainer *trainer, const struct piece *piece,
			       size_t first)
{
	bool is_at_once = trainer->config.on_device && !piece->is_offloaded;

	return is_at_once ? piece->count : smaller(STRIDE, piece->count - first);
}

static void pieces_convert_piece(const tutti_trainer *trainer, const struct piece *piece,
				 bool is_widened)
{
	tutti_dtype dtype = trainer->config.param_dtype;

	for (size_t first = 0, n; first < piece->count; first += n) {
		float *value = piece->value + first;
		void *low = element_at(piece->low, dtype, first);
		n = pieces_stride_of(trainer, piece, first);
		if (piece->is_offloaded && is_widened)
			pieces_values_read(piece->home, value, low, dtype, n);
		else if (piece->is_offloaded)
			values_write(piece->home, low, dtype, value, n);
		else if (is_widened)
			values_convert(piece->home, value, TUTTI_F32, low, dtype, n);
		else
			values_convert(piece->home, low, dtype, value, TUTTI_F32, n);
		state_let_go(trainer, piece, first, n);
	}
}

void piece_narrow(const tutti_trainer *trainer, const struct piece *piece)
{
	if (piece->low && piece->value)
		pieces_convert_piece(trainer, piece, false);
}

/* Converts all pieces that have a master copy. */
static void pieces_convert_pieces(const tutti_trainer *trainer, bool is_widened)
{
	for (int i = 0; i < trainer->piece_count; i++)
		if (trainer->pieces[i].low && trainer->pieces[i].value)
			pieces_convert_piece(trainer, &trainer->pieces[i], is_widened);
}

void pieces_widen(const tutti_trainer *trainer)
{
	pieces_convert_pieces(trainer, true);
}

void pieces_narrow(const tutti_trainer *trainer)
{
	pieces_convert_pieces(trainer, false);
}

uint64_t piece_hash(const tutti_trainer *trainer, const struct piece *piece)
{
	tutti_dtype dtype = piece->value ? TUTTI_F32 : trainer->config.param_dtype;
	char *values = piece->value ? (char *)piece->value : piece->low;
	uint64_t hash = 0;

	for (size_t first = 0, n; first < piece->count; first += n) {
		n = pieces_stride_of(trainer, piece, first);
		const void *at = element_at(values, dtype, first);
		size_t bytes = n * dtype_bytes(dtype);
		hash = random_mix(hash ^
				  (piece->is_offloaded ? random_hash(at, bytes)
						       : values_hash(piece->home, at, bytes)));
		state_let_go(trainer, piece, first, n);
	}
	return hash;
}

struct piece *piece_of(const tutti_trainer *trainer, int param)
{
	const struct bucket *bucket = bucket_of(trainer, param);

	for (int i = 0; i < bucket->piece_count; i++)
		if (trainer->pieces[bucket->first_piece + i].param == param)
			return &trainer->pieces[bucket->first_piece + i];
	return NULL;
}
