/* Optimizer state, in memory, on the device or in mapped files. A file is unlinked at once, so that
 * it goes with the process. Its space is allocated at once, so that a full disk is an error here
 * and not a signal later. */
#include "train/base/base.h"
#include "train/state/trainer_state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Makes a file without a name. path is for messages. */
static tutti_status optimizer_state_open_file(const tutti_trainer *trainer,
					      char path[DISK_PATH_BYTES], size_t bytes, int *file)
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

static tutti_status map_file(tutti_trainer *trainer, size_t count, struct state_file *state)
{
	size_t bytes = count * sizeof(float);
	char path[DISK_PATH_BYTES];
	int file = -1;

	TRY(optimizer_state_open_file(trainer, path, bytes, &file));
	void *values = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	tutti_status status =
		values == MAP_FAILED ? disk_fail("Mapping optimizer state in", path) : TUTTI_OK;
	close(file);
	TRY(status);
	*state = (struct state_file){values, bytes};
	return TUTTI_OK;
}

/* One array for all pieces of a home. */
static tutti_status place_in_memory(const tutti_trainer *trainer, const struct home *home,
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

static tutti_status make_array(tutti_trainer *trainer, struct home *home, int which)
{
	struct state_file *state = &home->files[which];

	if (state->values)
		return TUTTI_OK;
	return trainer->config.offload_dir ? map_file(trainer, home->state_count, state)
					   : place_in_memory(trainer, home, state);
}

static tutti_status optimizer_state_make_own(const struct piece *piece, float **place)
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
static bool has_arrays(const tutti_trainer *trainer)
{
	return trainer->config.on_device || trainer->config.offload_dir;
}

tutti_status state_make(tutti_trainer *trainer, struct piece *piece, int which)
{
	float **places[STATES] = {&piece->value, &piece->m, &piece->v}, **place = places[which];

	if (*place)
		return TUTTI_OK;
	bool is_array = !piece->is_shadow && has_arrays(trainer);
	if (is_array) {
		struct home *home = state_home(trainer, piece);
		TRY(make_array(trainer, home, which));
		*place = home->files[which].values + piece->state_first;
	} else {
		TRY(optimizer_state_make_own(piece, place));
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

static void free_array(const tutti_trainer *trainer, const struct home *home, int which)
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

void state_free(tutti_trainer *trainer)
{
	for (int i = 0; i < trainer->piece_count && !has_arrays(trainer); i++) {
		struct piece *piece = &trainer->pieces[i];
		free(piece->m);
		free(piece->v);
		if (piece->low)
			free(piece->value);
	}
	for (int h = 0; h < trainer->home_count; h++)
		for (int which = 0; which < STATES; which++)
			free_array(trainer, &trainer->homes[h], which);
}
