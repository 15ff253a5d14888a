/* Optimizer state, in memory or in mapped files. A file is unlinked at once, so that it goes with
 * the process. Its space is allocated at once, so that a full disk is an error here and not a
 * signal later. */
#include "train/base/train_error.h"
#include "train/state/pieces.h"
#include "train/state/trainer_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static tutti_status cannot(const tutti_trainer *trainer, const char *what, int error)
{
	return train_fail(TUTTI_ERR_SYSTEM, "offload_dir '%.200s': %s failed on rank %d: %s.",
			  trainer->config.offload_dir, what, trainer->rank, strerror(error));
}

/* Makes a file without a name. */
static tutti_status open_file(const tutti_trainer *trainer, size_t bytes, int *file)
{
	char path[512];
	int used =
		snprintf(path, sizeof path, "%s/tutti_state_XXXXXX", trainer->config.offload_dir);

	if (used < 0 || (size_t)used >= sizeof path)
		return cannot(trainer, "making a file", ENAMETOOLONG);
	int fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		return cannot(trainer, "making a file", errno);
	unlink(path);
	int error = posix_fallocate(fd, 0, (off_t)bytes);
	if (error) {
		close(fd);
		return cannot(trainer, "taking room for optimizer state", error);
	}
	*file = fd;
	return TUTTI_OK;
}

static tutti_status map_file(tutti_trainer *trainer, struct state_file *state)
{
	size_t bytes = trainer->state_count * sizeof(float);
	int file;

	TRY(open_file(trainer, bytes, &file));
	void *values = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	int error = errno;
	close(file);
	if (values == MAP_FAILED)
		return cannot(trainer, "mapping optimizer state", error);
	*state = (struct state_file){values, bytes};
	return TUTTI_OK;
}

static float **place_of(struct piece *piece, int which)
{
	return which == STATE_MASTER ? &piece->value : which == STATE_M ? &piece->m : &piece->v;
}

tutti_status state_make(tutti_trainer *trainer, struct piece *piece, int which)
{
	float **place = place_of(piece, which);

	if (*place)
		return TUTTI_OK;
	if (trainer->config.offload_dir) {
		if (!trainer->files[which].values)
			TRY(map_file(trainer, &trainer->files[which]));
		*place = trainer->files[which].values + piece->state_first;
		return TUTTI_OK;
	}
	*place = calloc(piece->count, sizeof **place);
	if (!*place)
		return train_no_memory("optimizer state");
	trainer->stats.optimizer_bytes += piece->count * sizeof **place;
	return TUTTI_OK;
}

/* For a missing page the kernel maps the whole folio that it holds in memory: pages that were let
 * go come back with their neighbours. So whole folios are let go. */
enum { FOLIO_BYTES = 2 << 20 };

void state_let_go(const tutti_trainer *trainer, const struct piece *piece, size_t first,
		  size_t count)
{
	if (!piece->sum) /* frozen: not in the files */
		return;
	size_t begin = (piece->state_first + first) * sizeof(float) / FOLIO_BYTES;
	size_t end = (piece->state_first + first + count) * sizeof(float) / FOLIO_BYTES + 1;
	for (int which = 0; which < STATES; which++) {
		const struct state_file *file = &trainer->files[which];
		size_t from = begin * FOLIO_BYTES, to = end * FOLIO_BYTES;
		if (to > file->bytes)
			to = file->bytes;
		if (file->values)
			madvise((char *)file->values + from, to - from, MADV_DONTNEED);
	}
}

void state_free(tutti_trainer *trainer)
{
	bool is_mapped = trainer->config.offload_dir != NULL;

	for (int i = 0; i < trainer->piece_count && !is_mapped; i++) {
		struct piece *piece = &trainer->pieces[i];
		free(piece->m);
		free(piece->v);
		if (piece->low)
			free(piece->value);
	}
	for (int which = 0; which < STATES; which++)
		if (trainer->files[which].values)
			munmap(trainer->files[which].values, trainer->files[which].bytes);
}
